#pragma once

#include "gpu/cpu/inference_maths.hpp"
#include "gpu/cpu/kv_cache.hpp"

namespace troupe::gpu::cpu {

/// A part of a model that is served on the caller's thread.
class cpu_inference_device final : public inference_device {
 public:
  cpu_inference_device(const inference_spec& s, inference_maths maths);

  const inference_spec& spec() const override { return spec_; }
  expected<void> reserve(sequence_id s, std::uint32_t positions) override;
  void release(sequence_id s) override { cache_.release(s); }
  std::uint32_t free_pages() const override { return cache_.free_pages(); }
  expected<void> keep(sequence_id s, std::uint32_t page, page_name name) override;
  expected<void> share(sequence_id s, std::span<const page_name> names) override;
  void drop(page_name name) override { cache_.drop(name); }
  expected<std::unique_ptr<inference_work>> prefill(sequence_id s, std::uint32_t first,
                                                    const payload& in,
                                                    const adapter_ref& adapter) override;
  expected<std::unique_ptr<inference_work>> decode(const std::vector<decode_row>& rows,
                                                   const payload& in) override;
  expected<std::unique_ptr<inference_work>> head(const payload& in) override;
  expected<payload> take_kv(sequence_id s, std::uint32_t first_layer, std::uint32_t layers,
                            std::uint32_t first_page, std::uint32_t pages) const override;
  expected<void> put_kv(sequence_id s, std::uint32_t first_layer, std::uint32_t layers,
                        std::uint32_t first_page, std::uint32_t pages, const payload& in) override;

 private:
  class tiles;
  class prefill_work;
  class decode_work;
  class head_work;

  /// The part's first attention is of this layer; it has attention_layers() of them.
  std::uint32_t first_attention() const { return (spec_.first_sublayer + 1) / 2; }
  std::uint32_t attention_layers() const;
  expected<void> check_tokens(std::span<const std::uint32_t> tokens) const;
  expected<void> prepare(const adapter_ref& a);
  expected<std::size_t> hidden_rows(const payload& in) const;
  expected<const kv_cache::sequence*> pages_of(sequence_id s, std::uint32_t end) const;
  expected<const kv_cache::sequence*> check_kv(sequence_id s, std::uint32_t first_layer,
                                               std::uint32_t layers, std::uint32_t first_page,
                                               std::uint32_t pages) const;
  /// The pages' keys in the layer of an attention, of the first `count` pages.
  std::vector<float*> keys(const kv_cache::sequence& s, std::uint32_t sublayer,
                           std::size_t count) const;

  inference_spec spec_;
  inference_maths maths_;
  kv_cache cache_;
  pool memory_;
};

}  // namespace troupe::gpu::cpu
