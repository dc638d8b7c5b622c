#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "processes/fixture.hpp"

// Requests to a model that is served beside a training, whose bubbles compute the prompts.

namespace troupe::test {

/// The outcomes of requests.
struct tally {
  std::atomic<std::size_t> answered{0}, bubbles{0}, again{0};
  std::size_t wrong = 0;  // of the answered ones; known when their clients have ended
  std::atomic<std::size_t> failed{0}, refused{0};  // refused: failed otherwise than by a 5xx
  std::atomic<std::size_t> two_guests{0};          // a prompt's layers were on two devices

  void decline(const std::string& why);
  /// Why prompts were not computed in bubbles: "3 x no_bubble_before_deadline; ".
  std::string declined() const;

 private:
  mutable std::mutex guard_;
  std::map<std::string, std::size_t> declined_;
};

/// Clients that ask one front as long as they exist, one request after the other. No two prompts
/// begin alike: a decoder computes one itself of which it has most in its cache. An answer is wrong
/// if its tokens are not those of the model alone.
class clients {
 public:
  /// `every_s`: a client begins no request sooner than that after the one before.
  clients(const std::string& url, std::uint64_t count, double every_s = 0);
  ~clients() { stop(); }
  /// Also compares all answers with the model's.
  void end();
  /// Waits until `more` further requests have ended well.
  bool go_on(std::size_t more, double limit_s = long_s) const;

  tally of;

 private:
  void stop();
  void ask(const std::string& url);

  std::atomic<bool> over_{false};
  std::mutex guard_;
  std::map<std::string, std::vector<std::uint32_t>> answers_;  // by prompt
  std::vector<std::thread> threads_;
};

/// A cluster with two decoders and a training that lends its bubbles.
struct lending_cluster : fixture {
  static constexpr double lease_s = 12;  // of beside-training.yaml

  /// `change`: of the training, which is configs/jobs/train-lends.yaml without an end.
  explicit lending_cluster(const std::function<void(job_spec&)>& change = {});

  job_status status();
  /// Waits until the training has done `more` further iterations.
  bool trains_on(std::uint64_t more);
  std::string node_of_stage(std::size_t n);
  /// SIGSTOP, and SIGCONT after that time.
  void stop_for(const std::string& name, double s);

  job_id training = 0;
  std::string url;  // of the first datacenter's front
};

}  // namespace troupe::test
