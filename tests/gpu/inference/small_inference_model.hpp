#pragma once

#include "gpu/inference/inference_model.hpp"

namespace troupe::test {

/// Two layers of 32, for tests that need any model: its weights are random.
inline gpu::inference_model small_inference_model() {
  gpu::inference_model m;
  m.name = "small";
  m.hidden = 32;
  m.layers = 2;
  m.heads = m.kv_heads = 4;
  m.head_width = 8;
  m.intermediate = 128;
  m.positions = 320;
  m.vocabulary = 256;
  return m;
}

}  // namespace troupe::test
