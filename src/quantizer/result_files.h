// result_files.h: what a quantised model says of itself beside its shards: the index, and the
// report with its notes. When they are written is quantize.cc's.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "quantizer/journal.h"
#include "quantizer/plan.h"
#include "quantizer/report.h"

namespace dsv4 {

// In the order of list_matrices, whichever shards were made by which run: all must be finished.
QuantizationReport make_report(const QuantizePlan& plan, const Journal& journal);

// On global scales that the layout cannot store as they are; empty where it can.
std::string reciprocals_note(const QuantizePlan& plan, const Journal& journal);

// Throws Error kIo.
void write_index(const QuantizePlan& plan, const std::filesystem::path& out);

// The report's figures, then {"options", "files", "calibration" (if there was one), "notes"}.
nlohmann::ordered_json report_file_json(const QuantizationReport& report, const Journal& journal,
                                        const std::vector<std::string>& notes);

}  // namespace dsv4
