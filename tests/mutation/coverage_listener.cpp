// Writes which mutants each test case executes to the file TROUPE_MUTATION_COVERAGE: a line
// "seconds<TAB>name<TAB>mutants". The first line, without a name, has what ran before any test; the
// second, named "-", the mutants that do not compile.

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>

#define CATCH_CONFIG_EXTERNAL_INTERFACES  // else without listeners
#include <catch2/catch.hpp>

#include "mutation/mutant.hpp"

namespace {

class coverage_listener : public Catch::TestEventListenerBase {
 public:
  using TestEventListenerBase::TestEventListenerBase;

  void testRunStarting(const Catch::TestRunInfo&) override {
    if (const char* file = std::getenv("TROUPE_MUTATION_COVERAGE")) out_.open(file);
    write("", mutation::executed);
    write("-", mutation::impossible);
  }
  void testCaseStarting(const Catch::TestCaseInfo& test) override {
    name_ = test.name;
    seconds_ = 0;
    std::fill_n(mutation::executed, mutation::max_sites, 0);
  }
  void sectionEnded(const Catch::SectionStats& s) override {
    if (s.sectionInfo.name == name_) seconds_ += s.durationInSeconds;
  }
  void testCaseEnded(const Catch::TestCaseStats&) override { write(name_, mutation::executed); }

 private:
  void write(const std::string& name, const unsigned char* which) {
    if (!out_.is_open()) return;
    out_ << seconds_ << '\t' << name << '\t';
    for (int id = 0; id < mutation::max_sites; ++id)
      if (which[id]) out_ << id << ' ';
    out_ << std::endl;
  }

  std::ofstream out_;
  std::string name_;
  double seconds_ = 0;
};

CATCH_REGISTER_LISTENER(coverage_listener)

}  // namespace
