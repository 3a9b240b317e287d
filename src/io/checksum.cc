#include "io/checksum.h"

#include <unistd.h>
#include <xxhash.h>

#include <array>
#include <cerrno>
#include <new>
#include <vector>

#include "io/file_descriptor.h"

namespace dsv4 {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{4} << 20;

}  // namespace

void Checksum::Free::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

Checksum::Checksum() : state_(XXH3_createState()) {
  if (state_ == nullptr) throw std::bad_alloc();
  XXH3_128bits_reset(state_.get());
}

void Checksum::update(std::span<const std::byte> bytes) {
  if (!bytes.empty()) XXH3_128bits_update(state_.get(), bytes.data(), bytes.size());
}

void Checksum::update(std::string_view text) { update(std::as_bytes(std::span(text))); }

std::string Checksum::hex() const {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state_.get()));
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : canonical.digest) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::string checksum_of_file(const std::filesystem::path& path,
                             const std::function<void(std::int64_t)>& progress) {
  const RegularFile file = open_regular_file(path);
  std::vector<std::byte> piece(kPieceBytes);
  Checksum checksum;
  for (std::int64_t done = 0;;) {
    const ssize_t n = ::read(file.fd.get(), piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_errno("read", path, errno);
    if (n == 0) return checksum.hex();
    checksum.update(std::span(piece).first(static_cast<std::size_t>(n)));
    done += n;
    if (progress) progress(done);
  }
}

}  // namespace dsv4
