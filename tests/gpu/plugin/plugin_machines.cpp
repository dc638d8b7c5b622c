#include "gpu/plugin/plugin_machines.hpp"

#include <cstdlib>

#include "gpu/cuda/runtime/library_search.hpp"
#include "gpu/pipeline.hpp"

extern "C" troupe::gpu::cuda::open_machine troupe_open_cuda_machine;

namespace troupe::test {

namespace {

// Before anything is opened.
const int found = ::setenv(gpu::cuda::library_folders_variable, FAKE_LIBRARIES, 1);

}  // namespace

opened_gpu open_gpu(int index) {
  char sentence[512] = "";
  opened_gpu o;
  o.m.reset(troupe_open_cuda_machine(index, sentence, sizeof sentence, &o.kind));
  o.why = sentence;
  return o;
}

model wide_model() {
  auto m = small_model();
  m.hidden = 48;
  m.heads = 2;
  m.layers = 2;
  return m;
}

}  // namespace troupe::test
