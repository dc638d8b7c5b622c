#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "gpu/cpu/stage_maths.hpp"

namespace troupe::gpu::cpu {

/// One stage on one thread of its own.
class device final : public stage_device {
 public:
  explicit device(const stage_spec& s);
  ~device() override;

  void submit(operation o, done d) override;

 private:
  struct microbatch {
    stage_input<float> in;
    stage_memory<float> kept;
    bool complete = false;  // `kept` has all that backward needs
  };

  void work();
  expected<outcome> run(const operation& o);
  expected<outcome> forward(const operation& o);
  expected<outcome> recompute(const operation& o);
  expected<outcome> backward(const operation& o);
  expected<outcome> update(const operation& o);
  expected<outcome> save(const operation& o);
  expected<outcome> load(const operation& o);
  outcome both(const buffer<float>& values) const;
  expected<stage_input<float>> input_of(const operation& o);
  expected<buffer<const std::uint32_t>> tokens_of(const payload& p);
  std::uint64_t activation_bytes() const;

  stage_spec spec_;
  stage_maths<float> maths_;
  std::map<std::uint32_t, microbatch> held_;

  std::mutex guard_;
  std::condition_variable wake_;
  std::deque<std::pair<operation, done>> waiting_;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace troupe::gpu::cpu
