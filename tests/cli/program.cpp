#include "cli/program.hpp"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <stdexcept>

#include "harness/source_dir.hpp"

namespace troupe::test {

namespace {

namespace fs = std::filesystem;

std::string read_file(const std::string& path) {
  std::ifstream in{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{in}, {}};
}

void redirect(const std::string& path, int to) {
  const int fd = open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
  if (fd < 0 || dup2(fd, to) < 0) _exit(126);
}

}  // namespace

result troupe(const std::vector<std::string>& arguments, const fs::path& directory,
              const std::string& input) {
  const scratch where;
  const auto out = where.path("out"), err = where.path("err");
  std::vector<std::string> words{TROUPE_PROGRAM};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (auto& w : words) argv.push_back(w.data());
  argv.push_back(nullptr);

  const pid_t pid = fork();
  if (pid < 0) throw std::runtime_error{"fork"};
  if (pid == 0) {
    if (!input.empty() && dup2(open(input.c_str(), O_RDONLY), STDIN_FILENO) < 0) _exit(126);
    redirect(out, STDOUT_FILENO);
    redirect(err, STDERR_FILENO);
    if (chdir(directory.c_str()) == 0) execv(argv[0], argv.data());
    _exit(127);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_file(out),
          read_file(err)};
}

std::string shipped(const std::string& name) {
  return troupe::test::source_dir() + "/configs/" + name;
}

nlohmann::json data_of_page(const std::filesystem::path& file) {
  auto page = read_file(file.string());
  const auto need = [&](bool holds, const std::string& what) {
    if (!holds) throw std::runtime_error{file.string() + ": " + what};
  };
  need(page.find("content=\"default-src 'none'") != std::string::npos, "may ask for other files");
  const std::string begin = "<script type=\"application/json\" id=\"data\">", end = "</script>";
  const auto from = page.find(begin);
  need(from != std::string::npos, "has no data");
  const auto size = page.find(end, from) - from - begin.size();
  const auto data = nlohmann::json::parse(page.substr(from + begin.size(), size));
  page.erase(from, begin.size() + size);
  // The name of XML's vocabulary is no address.
  const std::string vocabulary = "http://www.w3.org/2000/svg";
  for (std::size_t at; (at = page.find(vocabulary)) != std::string::npos;)
    page.erase(at, vocabulary.size());
  for (const auto* outside : {"http:", "https:", "src=", "href=", "url(", "@import", "import ",
                              "export ", "fetch(", "<link", "<img", "@data@", "@script@"})
    need(page.find(outside) == std::string::npos, std::string{"has "} + outside);
  return data;
}

}  // namespace troupe::test
