#pragma once

#include "gpu/cpu/inference_device.hpp"

// The CPU device's works. Hidden states are kept for whole tiles. Rows beyond the last are 0 at
// first; a prefill computes them like the others, which never see them.

namespace troupe::gpu::cpu {

/// Steps over (sublayer, tile), all tiles of a sublayer one after another: its weights are still in
/// the cache for the next.
class cpu_inference_device::tiles : public inference_work {
 public:
  tiles(cpu_inference_device& d, std::size_t rows, std::size_t tile_rows, std::size_t sublayers);

  std::uint32_t steps_left() const override;
  void step() override;

 protected:
  virtual void run(std::size_t sublayer, std::size_t tile) = 0;
  /// Hidden states that enter; nothing for tokens.
  void enter(const payload& in);
  float* hidden(std::size_t tile) { return hidden_.get() + tile * tile_rows_ * width_; }
  /// Rows of a tile that are not beyond the last.
  std::size_t rows_of(std::size_t tile) const {
    return std::min(tile_rows_, rows_ - tile * tile_rows_);
  }
  payload hidden_states() const { return as_payload(hidden_, rows_ * width_); }

  cpu_inference_device& device_;
  const std::size_t rows_, tile_rows_, tiles_, steps_, width_;

 private:
  buffer<float> hidden_;
  std::size_t next_ = 0;
};

class cpu_inference_device::prefill_work final : public tiles {
 public:
  prefill_work(cpu_inference_device& d, const kv_cache::sequence& pages, std::uint32_t first,
               std::size_t rows, std::vector<std::uint32_t> tokens, const payload& in,
               adapter_ref adapter);

  payload result() override { return hidden_states(); }

 private:
  void run(std::size_t sublayer, std::size_t tile) override;
  void attend(std::uint32_t sublayer, std::size_t tile, inference_maths::row_groups groups);

  const kv_cache::sequence& pages_;
  const std::uint32_t first_;
  const std::vector<std::uint32_t> tokens_;
  const adapter_ref adapter_;
};

class cpu_inference_device::decode_work final : public tiles {
 public:
  decode_work(cpu_inference_device& d, std::vector<decode_row> rows,
              std::vector<const kv_cache::sequence*> pages, const payload& in);

  payload result() override { return hidden_states(); }

 private:
  void run(std::size_t sublayer, std::size_t tile) override;
  void attend(std::uint32_t sublayer, std::size_t tile, inference_maths::row_groups groups);

  const std::vector<decode_row> rows_here_;
  const std::vector<const kv_cache::sequence*> pages_;
};

class cpu_inference_device::head_work final : public tiles {
 public:
  head_work(cpu_inference_device& d, std::size_t rows, const payload& in);

  payload result() override;

 private:
  void run(std::size_t, std::size_t tile) override;

  buffer<float> logits_;
};

}  // namespace troupe::gpu::cpu
