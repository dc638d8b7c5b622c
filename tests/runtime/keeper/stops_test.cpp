// Programs that are asked to stop, with everything that they have started.

#include <fstream>

#include "runtime/host/real_clock.hpp"
#include "runtime/kept_world.hpp"

using namespace troupe;
using namespace troupe::runtime;
using namespace troupe::runtime::test;

namespace {

/// A training: it says its number in DIR/NAME.up, and after SIGTERM it takes half a second to save,
/// in DIR/NAME.saved. `sleep && touch`: a signal to what it starts to save would lose that.
std::string trains(const scratch& dir, const std::string& name) {
  const auto file = dir / (name + ".sh");
  std::ofstream{file} << "trap 'sleep 0.5 && touch " << dir / name << ".saved; exit 0' TERM\n"
                      << "echo $$ > " << dir / name << ".up\n"
                      << "while :; do sleep 0.05; done\n";
  return "sh " + file;
}

bool exists(const std::string& path) {
  return std::filesystem::exists(path);
}

process_options perl(const std::string& script, const std::vector<std::string>& words = {}) {
  process_options o{.command = {"perl", "-e", script}};
  o.command.insert(o.command.end(), words.begin(), words.end());
  return o;
}

}  // namespace

TEST_CASE("what a program has started has the whole grace, however it was started") {
  kept_world w;
  const auto [shape, script] = GENERATE(table<std::string, std::string>({
      {"shell", "%; echo ends"},
      {"shell of a shell", "sh -c '%; true'; echo ends"},
      {"pipe", "% | cat"},
      {"timeout", "timeout 1000 %; echo ended"},
      {"a group", "set -m; % & wait"},
      {"a session", "setsid % & wait"},
      {"a daemon", "(env -i PATH=$PATH setsid % &); sleep 1000"},
  }));
  INFO(shape);
  auto text = script;
  text.replace(text.find('%'), 1, trains(w.dir, "training"));
  auto p = w.run(shell(text));
  const auto training = written_pid(w.dir / "training.up");
  CHECK_FALSE(p->poll());
  p->terminate(60);
  const auto end = end_of(*p);
  CHECK(end.what == kept_end::how::exited);
  CHECK(end.asked);
  CHECK(exists(w.dir / "training.saved"));
  CHECK(gone(training));
}

TEST_CASE("the exit status of a stopped program is its first process's") {
  kept_world w;
  auto p = w.run(shell("trap 'exit 7' TERM; " + trains(w.dir, "training") + " & wait"));
  written_pid(w.dir / "training.up");
  p->terminate(60);
  CHECK(end_of(*p).status == 7);
  CHECK(exists(w.dir / "training.saved"));
  auto plain = w.run(shell(trains(w.dir, "other") + "; echo ends"));
  written_pid(w.dir / "other.up");
  plain->terminate(60);
  CHECK(end_of(*plain).status == 128 + SIGTERM);
}

TEST_CASE("a program that was stopped is continued to save") {
  kept_world w;
  auto p = w.run(shell(trains(w.dir, "training") + "; echo ends"));
  const auto training = written_pid(w.dir / "training.up");
  ::kill(parent_of(training), SIGSTOP);
  ::kill(training, SIGSTOP);
  p->terminate(60);
  end_of(*p);
  CHECK(exists(w.dir / "training.saved"));
}

TEST_CASE("what outlives the grace is killed, in whatever session it is") {
  kept_world w;
  auto p = w.run(shell("setsid sh -c \"trap '' TERM; echo \\$\\$ > " + w.dir / "up" +
                       "; while :; do sleep 1000; done\" & wait"));
  const auto stubborn = written_pid(w.dir / "up");
  p->terminate(0.5);
  CHECK(end_of(*p).status == 128 + SIGTERM);
  CHECK(gone(stubborn));
}

TEST_CASE("the lease's end ends what is still saving after its program") {
  kept_world w;
  auto p = w.run(shell("setsid sh -c \"trap '' TERM; echo \\$\\$ > " + w.dir / "up" +
                       "; while :; do sleep 1000; done\" & wait"));
  const auto stubborn = written_pid(w.dir / "up"), program = parent_of(stubborn);
  p->terminate(1000);
  REQUIRE(eventually([&] { return gone(program); }));
  CHECK_FALSE(p->poll());
  p->renew(seconds_from_now(0));
  CHECK(end_of(*p).status == 128 + SIGTERM);
  CHECK(gone(stubborn));
}

TEST_CASE("a program that ends before its SIGTERM is due has what it left asked at once") {
  kept_world w;
  auto p = w.run(shell("setsid " + trains(w.dir, "training") + " & until [ -e " + w.dir / "go" +
                       " ]; do sleep 0.05; done; exit 3"));
  written_pid(w.dir / "training.up");
  p->terminate(1000, 900);
  std::ofstream{w.dir / "go"};
  CHECK(end_of(*p).status == 3);
  CHECK(exists(w.dir / "training.saved"));
}

// A worker is a fork. Its program ends with 5 if the worker lives while it saves.
TEST_CASE("a program's workers live until it has saved, and get SIGTERM then") {
  kept_world w;
  const std::string program =
      "my ($up, $asked) = @ARGV; my $c = fork;"
      "if (!$c) { $SIG{TERM} = sub { open my $f, '>', $asked; exit 0 }; sleep 1 while 1 }"
      "my $dead = 0; $SIG{CHLD} = sub { $dead = 1 };"
      "$SIG{TERM} = sub { select undef, undef, undef, 0.5; $SIG{CHLD} = 'DEFAULT';"
      "                   POSIX::_exit($dead ? 9 : 5) };"
      "open my $f, '>', $up; print $f \"$c\\n\"; close $f; sleep 1 while 1";
  auto p = w.run(perl("use POSIX;" + program, {w.dir / "up", w.dir / "asked"}));
  const auto worker = written_pid(w.dir / "up");
  p->terminate(60);
  CHECK(end_of(*p).status == 5);
  CHECK(exists(w.dir / "asked"));
  CHECK(gone(worker));
}

TEST_CASE("workers of a program that waits for them get SIGTERM before the grace is over") {
  kept_world w;
  const std::string program =
      "my ($up) = @ARGV; my $c = fork; if (!$c) { $SIG{TERM} = sub { exit 0 }; sleep 1 while 1 }"
      "$SIG{TERM} = sub { waitpid $c, 0; exit 5 };"
      "open my $f, '>', $up; print $f \"$c\\n\"; close $f; sleep 1 while 1";
  auto p = w.run(perl(program, {w.dir / "up"}));
  written_pid(w.dir / "up");
  p->terminate(2);
  CHECK(end_of(*p).status == 5);
}

// As some launchers start ranks: with their own command line, and other variables.
TEST_CASE("a rank that has its launcher's command line is no worker") {
  kept_world w;
  const auto file = w.dir / "rank.pl";
  std::ofstream{file} << "use POSIX; my ($up) = @ARGV;\n"
                         "if ($ENV{LOCAL_RANK}) { $SIG{TERM} = sub { POSIX::_exit(4) };\n"
                         "  open my $f, '>', $up; print $f \"$$\\n\"; close $f; sleep 1 while 1 }\n"
                         "$SIG{TERM} = sub {};\n"
                         "my $c = fork;\n"
                         "if (!$c) { $ENV{LOCAL_RANK} = 1; exec $^X, $0, @ARGV }\n"
                         "1 while waitpid($c, 0) < 0; POSIX::_exit($? >> 8);\n";
  auto p = w.run({.command = {"perl", file, w.dir / "up"}});
  written_pid(w.dir / "up");
  p->terminate(1000);
  CHECK(end_of(*p).status == 4);
}
