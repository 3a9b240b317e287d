// quantization_claims.cc: fuzzes what config.json and hf_quant_config.json say of the experts'
// formats, and the reading of tensor names. The input: config.json, a zero, hf_quant_config.json.
#include "checkpoint/quantization_claims.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "checkpoint/tensor_names.h"
#include "fuzz.h"
#include "io/temp_dir.h"

namespace dsv4::fuzz {
namespace {

// The files are read by name. One directory serves all inputs of a process.
class ModelDirectory {
 public:
  const std::filesystem::path& path() const { return directory_.path(); }
  void write(std::string_view name, std::string_view content) const {
    std::ofstream file(directory_ / name, std::ios::binary | std::ios::trunc);
    file.write(content.data(), static_cast<std::streamsize>(content.size()));
    file.close();
    FUZZ_CHECK(file.good());
  }

 private:
  TempDir directory_;
};

BindReport report_of_two_layers() {
  BindReport report;
  report.layers.resize(2);
  report.layers[0].name = "layers.0";
  report.layers[0].expert_formats = "NVFP4";
  report.layers[1].name = "layers.1";
  report.layers[1].expert_formats = "MXFP4";
  return report;
}

}  // namespace
}  // namespace dsv4::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dsv4::fuzz;
  static const ModelDirectory directory;
  static const dsv4::BindReport report = report_of_two_layers();
  std::string_view text = as_text(data, size);
  directory.write("config.json", take_part(text, std::string_view("\0", 1)));
  directory.write("hf_quant_config.json", text);
  for (const std::string& note : dsv4::check_quantization_claims(directory.path(), report)) {
    check_message(note);
  }
  const std::string official = dsv4::official_name(text);
  FUZZ_CHECK(official.empty() == text.empty());
  dsv4::foreign_scheme(official);
  dsv4::is_draft_copy(official);
  return 0;
}
