// quantize_fixtures.h: what the tests of whole quantisations share: jobs, models cut into shards,
// and the comparison of files and of what models decode to.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_test_files.h"
#include "checkpoint/checkpoint_variants.h"
#include "quantizer/quantize.h"

namespace dsv4 {

inline QuantizeJob quantize_job(const std::filesystem::path& in, const std::filesystem::path& out) {
  QuantizeJob job;
  job.in = in;
  job.out = out;
  job.num_threads = 1;
  return job;
}

inline void expect_refused(const QuantizeJob& job, ErrorCode code,
                           const std::vector<std::string>& parts) {
  expect_error(code, parts, [&] { quantize_checkpoint(job); });
}

// Every file of a directory, hidden ones too: name to content.
inline std::map<std::string, std::string> files_of(const std::filesystem::path& dir) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    files[entry.path().filename().string()] = get_file(entry.path());
  }
  return files;
}

// With names instead of megabytes in the message.
inline void expect_same_files(const std::filesystem::path& got, const std::filesystem::path& want) {
  const auto got_files = files_of(got), want_files = files_of(want);
  for (const auto& [name, content] : want_files) {
    const auto found = got_files.find(name);
    if (found == got_files.end()) {
      ADD_FAILURE() << got << " lacks " << name;
    } else {
      EXPECT_TRUE(found->second == content) << name << " differs in " << got;
    }
  }
  for (const auto& [name, content] : got_files) {
    EXPECT_TRUE(want_files.count(name) > 0) << got << " has " << name << " as well";
  }
}

// All weights decode to the same bits, draft block included.
inline void expect_same_values(const std::filesystem::path& got,
                               const std::filesystem::path& want) {
  const ModelValues got_values(*load_checkpoint(got)), want_values(*load_checkpoint(want));
  ASSERT_EQ(got_values.all().size(), want_values.all().size());
  for (const auto& [name, values] : want_values.all()) {
    const std::vector<float>& other = got_values.all().at(name);
    ASSERT_EQ(other.size(), values.size()) << name;
    EXPECT_EQ(std::memcmp(other.data(), values.data(), values.size() * sizeof(float)), 0) << name;
  }
}

// The model of `in` in `num_shards` shards with an index, its tensors dealt out in turns of
// `run_length`, so that matrices and their scales, gates and ups part.
inline void write_sharded(const std::filesystem::path& in, const std::filesystem::path& out,
                          int num_shards, std::size_t run_length) {
  std::filesystem::create_directories(out);
  for (const auto& entry : std::filesystem::directory_iterator(in)) {
    if (entry.path().extension() != ".safetensors") {
      std::filesystem::copy(entry.path(), out / entry.path().filename());
    }
  }
  const TensorStore store = TensorStore::open(in);
  std::vector<std::vector<TensorData>> shards(static_cast<std::size_t>(num_shards));
  nlohmann::json index;
  const auto name_of = [&](std::size_t shard) {
    return fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, num_shards);
  };
  for (std::size_t i = 0; i < store.tensors().size(); ++i) {
    const StoredTensor& tensor = store.tensors()[i];
    const std::size_t shard = i / run_length % shards.size();
    shards[shard].push_back(
        {tensor.info->name, tensor.info->dtype, tensor.info->shape, tensor.bytes});
    index["weight_map"][tensor.info->name] = name_of(shard);
  }
  for (std::size_t i = 0; i < shards.size(); ++i) {
    write_safetensors(out / name_of(i), shards[i], {{"format", "pt"}});
  }
  put_file(out / kIndexFileName, index.dump());
}

}  // namespace dsv4
