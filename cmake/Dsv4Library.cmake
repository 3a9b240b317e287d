# The shared library of the public API, and what an installation holds: headers, library, program
# with its completions, a CMake package (find_package(dsv4), target dsv4::dsv4) and a pkg-config file.
#
# Only the API's symbols are exported (dsv4.map), so that an embedder's own fmt or JSON library meets
# none of ours.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set_source_files_properties(${PROJECT_SOURCE_DIR}/src/runtime/c_api.cc TARGET_DIRECTORY dsv4_runtime
  PROPERTIES COMPILE_DEFINITIONS DSV4_VERSION="${PROJECT_VERSION}")

set(dsv4_symbols ${CMAKE_CURRENT_LIST_DIR}/dsv4.map)
# The objects of the folders that implement include/dsv4: out of an archive nothing would take them.
add_library(dsv4_library SHARED $<TARGET_OBJECTS:dsv4_runtime> $<TARGET_OBJECTS:dsv4_base>)
add_library(dsv4::dsv4 ALIAS dsv4_library)  # the name it has in an installation
target_link_libraries(dsv4_library PRIVATE dsv4_runtime)
target_link_options(dsv4_library PRIVATE LINKER:--version-script=${dsv4_symbols})
target_include_directories(dsv4_library INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
target_compile_features(dsv4_library INTERFACE cxx_std_20)
# Before 1.0 a minor version may break the ABI.
set_target_properties(dsv4_library PROPERTIES
  OUTPUT_NAME dsv4
  EXPORT_NAME dsv4
  LINKER_LANGUAGE CXX
  LINK_DEPENDS ${dsv4_symbols}
  VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})

set(DSV4_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/dsv4)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/dsv4-config.cmake.in dsv4-config.cmake
  INSTALL_DESTINATION ${DSV4_CMAKE_DIR} NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(dsv4-config-version.cmake COMPATIBILITY SameMinorVersion)
configure_file(${CMAKE_CURRENT_LIST_DIR}/dsv4.pc.in dsv4.pc @ONLY)

install(TARGETS dsv4_library EXPORT dsv4-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET dsv4)
  install(TARGETS dsv4 RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  # Where the shells look for completions.
  set(dsv4_completions ${PROJECT_BINARY_DIR}/apps)
  install(FILES ${dsv4_completions}/dsv4.bash RENAME dsv4
    DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES ${dsv4_completions}/dsv4.zsh RENAME _dsv4 DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  install(FILES ${dsv4_completions}/dsv4.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/dsv4 DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(EXPORT dsv4-targets NAMESPACE dsv4:: DESTINATION ${DSV4_CMAKE_DIR})
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/dsv4-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/dsv4-config-version.cmake
  DESTINATION ${DSV4_CMAKE_DIR})
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/dsv4.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
