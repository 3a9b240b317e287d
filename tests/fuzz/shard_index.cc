// shard_index.cc: fuzzes model.safetensors.index.json.
#include "io/shard_index.h"

#include <algorithm>
#include <set>

#include "fuzz.h"
#include "io/safetensors.h"

namespace dsv4::fuzz {
namespace {

void parse(std::string_view json) {
  const ShardIndex index = parse_shard_index(json, "fuzz");
  FUZZ_CHECK(!index.entries.empty() && !index.shard_names.empty());
  FUZZ_CHECK(std::is_sorted(index.shard_names.begin(), index.shard_names.end()));
  const std::set<std::string> shards(index.shard_names.begin(), index.shard_names.end());
  FUZZ_CHECK(shards.size() == index.shard_names.size());
  for (const std::string& name : shards) {
    FUZZ_CHECK(name.ends_with(".safetensors") && name.find_first_of("/\\") == name.npos);
  }
  std::set<std::string> tensors;
  std::set<int> used;
  for (const ShardIndex::Entry& entry : index.entries) {
    FUZZ_CHECK(tensor_name_fault(entry.tensor).empty());
    FUZZ_CHECK(tensors.insert(entry.tensor).second);
    FUZZ_CHECK(entry.shard >= 0 && static_cast<std::size_t>(entry.shard) < shards.size());
    used.insert(entry.shard);
  }
  FUZZ_CHECK(used.size() == shards.size());
}

}  // namespace
}  // namespace dsv4::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dsv4::fuzz;
  accepted([&] { parse(as_text(data, size)); });
  return 0;
}
