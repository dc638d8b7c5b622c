#pragma once

#include <array>
#include <cstdint>

namespace troupe {

/// The only random generator (xoshiro256**): seeded and portable, and its state can be hashed into
/// a run's fingerprint. The distributions are implemented here, so that they are portable, too.
class random_source {
 public:
  explicit constexpr random_source(std::uint64_t seed) {
    for (auto& word : state_) {  // splitmix64, as recommended by the generator's authors
      seed += 0x9e3779b97f4a7c15ULL;
      std::uint64_t z = seed;
      z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
      z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
      word = z ^ (z >> 31);
    }
  }

  /// 64 random bits.
  constexpr std::uint64_t next() {
    const std::uint64_t result = rotate(state_[1] * 5, 7) * 9;
    const std::uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = rotate(state_[3], 45);
    return result;
  }

  /// Uniform in [0, 1).
  constexpr double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

  /// Uniform in [0, n); n > 0. The bias of a plain modulus is below 2^-32 for the n used here.
  constexpr std::uint64_t below(std::uint64_t n) { return next() % n; }

  /// True with probability p.
  constexpr bool chance(double p) { return uniform() < p; }

  /// An independent generator for one user, so that adding a user does not change the draws of
  /// others.
  constexpr random_source split(std::uint64_t stream) {
    return random_source{next() ^ (stream * 0xd1342543de82ef95ULL)};
  }

  constexpr const std::array<std::uint64_t, 4>& state() const { return state_; }

 private:
  static constexpr std::uint64_t rotate(std::uint64_t x, int k) {
    return (x << k) | (x >> (64 - k));
  }
  std::array<std::uint64_t, 4> state_{};
};

}  // namespace troupe
