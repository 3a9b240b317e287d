// token_ids.cc: fuzzes token ids as text.
#include "text/token_ids.h"

#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dsv4::fuzz;
  accepted([&] {
    const std::vector<dsv4::TokenId> ids = dsv4::parse_token_ids(as_text(data, size));
    for (const dsv4::TokenId id : ids) FUZZ_CHECK(id >= 0);
    FUZZ_CHECK(dsv4::parse_token_ids(dsv4::format_token_ids(ids)) == ids);
  });
  return 0;
}
