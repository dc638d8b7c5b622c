#pragma once

#include <chrono>
#include <thread>

namespace troupe::runtime {

/// Lets the calling thread sleep in real time: for programs that poll, never for actors.
inline void pause(double s) {
  std::this_thread::sleep_for(std::chrono::duration<double>(s));
}

}  // namespace troupe::runtime
