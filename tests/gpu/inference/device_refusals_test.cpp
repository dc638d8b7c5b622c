#include <catch2/catch.hpp>

#include "gpu/inference/inference_device.hpp"
#include "gpu/inference/model_folder.hpp"
#include "harness/files.hpp"

using namespace troupe;
using namespace troupe::gpu;
using namespace troupe::test;
using Catch::Contains;

namespace {

constexpr std::uint32_t pages_here = 3;

/// Sublayers [first, end) of a llama with four layers and random weights.
std::unique_ptr<inference_device> part(std::uint32_t first, std::uint32_t end) {
  const auto folder = temporary("refusing/config.json", small_model_named("llama").config);
  auto s = whole_model(loaded(read_inference_model(folder.parent_path())), pages_here);
  s.seed = 1;
  s.first_sublayer = first;
  s.sublayers = end - first;
  s.embeds = first == 0;
  s.predicts = end == 8;
  return loaded(make_cpu_inference_device(s));
}

template <class T>
std::string why(const expected<T>& result) {
  return result ? "" : result.error().text;
}

payload tokens(std::size_t count, std::uint32_t each = 5) {
  const std::vector<std::uint32_t> all(count, each);
  const auto bytes = std::as_bytes(std::span{all});
  return payload{std::vector<std::byte>{bytes.begin(), bytes.end()}};
}

payload zeros(std::size_t bytes) {
  return payload{std::vector<std::byte>(bytes)};
}

}  // namespace

TEST_CASE("a device refuses prompts that it cannot compute, and says why") {
  const auto d = part(0, 8);
  CHECK_THAT(why(d->prefill(1, 0, tokens(1))),
             Contains("sequence 1 has pages for 0 positions, but 1 are needed"));
  CHECK(d->reserve(1, 100));
  CHECK_THAT(why(d->prefill(1, 1, tokens(1))),
             Contains("begins at position 1, expected a multiple of 64"));
  CHECK_THAT(why(d->prefill(1, 0, tokens(0))), Contains("at least one token"));
  CHECK_THAT(why(d->prefill(1, 0, tokens(1, 96))), Contains("token 96 is beyond"));
  CHECK_THAT(why(d->prefill(1, 64, tokens(65))), Contains("but 129 are needed"));
  CHECK_THAT(why(d->prefill(1, 0, tokens(449))), Contains("more than the 448"));
  CHECK_THAT(why(d->prefill(1, 448, tokens(1))), Contains("more than the 448"));
  CHECK(why(d->prefill(1, 64, tokens(64))).empty());
}

TEST_CASE("pages are reserved whole or not at all, and come back") {
  const auto d = part(0, 8);
  CHECK(d->free_pages() == 3);
  CHECK(d->reserve(1, 65));
  CHECK(d->free_pages() == 1);
  CHECK(d->reserve(1, 128));  // it has them
  CHECK(d->reserve(1, 1));
  CHECK(d->free_pages() == 1);
  const auto refused = d->reserve(2, 65);
  CHECK_THAT(why(refused), Contains("65 positions need 2 pages; 1 of 3 are free"));
  CHECK(refused.error().code == reason::kind::insufficient);
  CHECK(d->free_pages() == 1);
  CHECK_THAT(why(d->reserve(2, 449)), Contains("449 positions are more than the 448"));
  d->release(1);
  d->release(1);
  CHECK(d->free_pages() == 3);
}

TEST_CASE("a device refuses decodes that it cannot compute") {
  const auto d = part(0, 8);
  CHECK(d->reserve(1, 64));
  CHECK_THAT(why(d->decode({}, {})), Contains("nothing to decode"));
  CHECK_THAT(why(d->decode({{1, 3, 5}, {1, 4, 5}}, {})), Contains("sequence 1 is twice"));
  CHECK_THAT(why(d->decode({{1, 3, 96}}, {})), Contains("token 96 is beyond"));
  CHECK_THAT(why(d->decode({{1, 64, 5}}, {})), Contains("but 65 are needed"));
  CHECK_THAT(why(d->decode({{1, 448, 5}}, {})), Contains("position 448 is beyond"));
  CHECK_THAT(why(d->decode({{2, 0, 5}}, {})), Contains("sequence 2 has pages for 0"));
}

TEST_CASE("a part of a model takes hidden states, and has no head unless it is the last") {
  const auto d = part(3, 6);
  CHECK(d->reserve(1, 64));
  const std::size_t row = 64 * sizeof(float);
  CHECK_THAT(why(d->prefill(1, 0, zeros(row + 1))), Contains("257 bytes are no hidden states"));
  CHECK_THAT(why(d->prefill(1, 0, {})), Contains("0 bytes are no hidden states"));
  CHECK_THAT(why(d->decode({{1, 3, 0}}, zeros(2 * row))),
             Contains("2 hidden states for 1 sequences"));
  CHECK_THAT(why(d->head(zeros(row))), Contains("has no head"));
  CHECK(why(d->prefill(1, 0, zeros(3 * row))).empty());
  auto beyond = d->spec();
  beyond.sublayers = 6;
  CHECK_THAT(why(make_cpu_inference_device(beyond)), Contains("sublayers 3 to 9 were requested"));
}

TEST_CASE("pages are handed over only for layers and pages that are there") {
  const auto d = part(3, 6);  // an MLP, then layer 2: one attention
  CHECK(d->reserve(1, 100));
  const auto bytes = page_bytes(d->spec().model);
  CHECK(loaded(d->take_kv(1, 2, 1, 0, 2)).bytes().size() == 2 * bytes);
  CHECK_THAT(why(d->take_kv(1, 1, 1, 0, 1)),
             Contains("1 layers from 1 on were requested, but the cache has 2 to 3"));
  CHECK_THAT(why(d->take_kv(1, 2, 2, 0, 1)), Contains("2 layers from 2 on"));
  CHECK_THAT(why(d->take_kv(1, 2, 1, 1, 2)),
             Contains("2 pages from 1 on were requested, but sequence 1 has 2"));
  CHECK_THAT(why(d->put_kv(2, 2, 1, 0, 1, zeros(bytes))), Contains("sequence 2 has 0"));
  CHECK_THAT(why(d->put_kv(1, 2, 1, 0, 1, zeros(bytes - 4))), Contains("bytes of keys and values"));
  CHECK(d->put_kv(1, 2, 1, 1, 1, zeros(bytes)));
}
