// resident_memory.h: how much memory of this process is resident, as the kernel tells it, for tests
// of what a bound promises. What may be resident is for the tests to say.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace dsv4 {

// Sanitizers keep freed memory and shadows of their own, which a process's total would show.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kKeepsFreedMemory = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool kKeepsFreedMemory = true;
#else
inline constexpr bool kKeepsFreedMemory = false;
#endif
#else
inline constexpr bool kKeepsFreedMemory = false;
#endif

// The most that was ever resident, mapped files included; 0 where the kernel does not say.
std::int64_t peak_resident_bytes();

// Makes peak_resident_bytes() begin anew; false where the kernel does not allow it.
bool reset_peak_resident();

// Of the mapped files in `directory`, which exists, what is resident now; none where the kernel
// does not say. A sanitizer does not change it.
std::optional<std::int64_t> resident_file_bytes(const std::filesystem::path& directory);

}  // namespace dsv4
