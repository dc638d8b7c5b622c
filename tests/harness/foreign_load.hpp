#pragma once

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>

namespace troupe::harness {

/// Processor time that other programs have had since this was made. Prompts in bubbles run with the
/// lowest priority, so a test of them can expect nothing of a machine that others use.
class foreign_load {
 public:
  foreign_load() : total_{all()}, busy_{total_.busy - own()} {}

  /// The foreign share of all processors' time, from 0 to 1.
  double share() const {
    const auto now = all();
    const double whole = now.busy + now.idle - total_.busy - total_.idle;
    return whole <= 0 ? 0 : (now.busy - own() - busy_) / whole;
  }

  /// Reports a share of more than a tenth.
  bool was_high() const {
    const auto found = share();
    if (found <= 0.1) return false;
    WARN("not checked: other programs had " << static_cast<int>(100 * found)
                                            << " % of the processors, at most 10 % may");
    return true;
  }

 private:
  struct ticks {
    double busy = 0, idle = 0;  // of a second, of all processors
  };

  static ticks all() {
    std::ifstream in{"/proc/stat"};
    std::string name;
    double user = 0, nice = 0, system = 0, idle = 0, wait = 0, irq = 0, soft = 0, steal = 0;
    in >> name >> user >> nice >> system >> idle >> wait >> irq >> soft >> steal;
    const auto tick = static_cast<double>(::sysconf(_SC_CLK_TCK));
    return {(user + nice + system + irq + soft + steal) / tick, (idle + wait) / tick};
  }

  struct process {
    int parent = 0;
    double s = 0;  // its own, and its ended children's
  };
  static std::map<int, process> processes() {
    const auto tick = static_cast<double>(::sysconf(_SC_CLK_TCK));
    std::map<int, process> found;
    std::error_code gone;
    for (const auto& entry : std::filesystem::directory_iterator{"/proc", gone}) {
      const auto name = entry.path().filename().string();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      std::ifstream in{entry.path() / "stat"};
      std::string line;
      if (!std::getline(in, line)) continue;
      std::istringstream rest{line.substr(line.rfind(')') + 1)};
      char state = 0;
      process p;
      std::string skipped;
      rest >> state >> p.parent;
      for (int field = 5; field <= 13; ++field) rest >> skipped;
      double user = 0, system = 0, children_user = 0, children_system = 0;
      rest >> user >> system >> children_user >> children_system;
      p.s = (user + system + children_user + children_system) / tick;
      found[std::atoi(name.c_str())] = p;
    }
    return found;
  }

  /// The processor time of this process and of all that it has started.
  static double own() {
    const auto all = processes();
    std::set<int> mine{::getpid()};
    for (bool more = true; more;) {
      more = false;
      for (const auto& [id, p] : all)
        if (mine.contains(p.parent)) more |= mine.insert(id).second;
    }
    double s = 0;
    for (const auto id : mine)
      if (const auto at = all.find(id); at != all.end()) s += at->second.s;
    return s;
  }

  const ticks total_;
  const double busy_;
};

}  // namespace troupe::harness
