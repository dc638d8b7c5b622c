#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "cli/program.hpp"
#include "harness/scratch.hpp"
#include "harness/stored_values.hpp"
#include "runtime/host/wait.hpp"
#include "runtime/process/process.hpp"
#include "web/raw_client.hpp"

// A real `troupe serve` of a model that overflows.

using namespace troupe;
using namespace troupe::test;
using Catch::Contains;
using nlohmann::json;

namespace {

namespace fs = std::filesystem;

constexpr double long_s = 60, soon_s = 15;
constexpr std::size_t overflows_at = 100, positions = 512, hidden = 128;

/// The model that ships, whose positions from `overflows_at` on overflow.
fs::path overflowing(const scratch& dir) {
  const auto folder = fs::path{dir.path("scribe")};
  fs::copy(shipped("models/scribe"), folder, fs::copy_options::recursive);
  overwrite_values(folder / "model.safetensors", "transformer.wpe.weight", overflows_at * hidden,
                   (positions - overflows_at) * hidden, 3e38f);
  return folder;
}

/// A `troupe serve` that ends with this.
class overflowing_server {
 public:
  overflowing_server() {
    const auto out = dir_.path("out");
    auto started = runtime::process::start(
        {{TROUPE_PROGRAM, "serve", overflowing(dir_), "--port", "0", "--json"}, {}, {}, out});
    REQUIRE(started);
    process_ = std::move(*started);
    const auto text = [&] {
      std::ifstream in{out};
      return std::string{std::istreambuf_iterator<char>{in}, {}};
    };
    REQUIRE(runtime::wait_until([&] { return json::accept(text()) || process_->poll(); }, long_s));
    INFO(text());
    REQUIRE(json::accept(text()));
    const auto url = json::parse(text()).at("url").get<std::string>();
    port_ = static_cast<std::uint16_t>(std::stoi(url.substr(url.rfind(':') + 1)));
  }
  std::string request(json body) const {
    body["model"] = "scribe";
    return post("/v1/completions", body.dump());
  }
  raw_answer ask(const std::string& request) const {
    raw_client c{port_};
    c.send(request);
    return c.answer();
  }
  std::uint16_t port() const { return port_; }

 private:
  scratch dir_;
  std::unique_ptr<runtime::process> process_;
  std::uint16_t port_ = 0;
};

}  // namespace

TEST_CASE("logits that are not finite are an error of their request, and of no other") {
  const overflowing_server s;
  const std::string few(30, 'a'), many(150, 'a'), nearly(95, 'a');
  const json sound{{"prompt", few}, {"max_tokens", 60}, {"temperature", 0}, {"logprobs", 1}};
  const auto alone = s.ask(s.request(sound)).document();
  REQUIRE(alone.at("choices").size() == 1);

  raw_client beside{s.port()};
  beside.send(s.request(sound));
  const auto why = std::string{"position 150: the model's logit of token 0 is "};
  for (const json& prompt : {json(many), json{few, many}, json{many, few}}) {
    const auto a = s.ask(s.request({{"prompt", prompt}, {"max_tokens", 5}, {"n", 2}}));
    INFO(a.body);
    CHECK(a.status == 500);
    const auto d = a.document();
    CHECK_FALSE(d.contains("choices"));  // nor those that are finite
    CHECK_THAT(d.at("error").at("message").get<std::string>(), Contains(why));
    CHECK(d.at("error").at("type") == "server_error");
  }
  const auto stream =
      s.ask(s.request({{"prompt", nearly}, {"max_tokens", 20}, {"stream", true}})).events();
  REQUIRE(stream.size() > 1);
  CHECK(stream.front().contains("choices"));
  CHECK_THAT(stream.back().at("error").at("message").get<std::string>(),
             Contains("position 101: the model's logit"));
  for (const auto& e : stream)
    if (e.contains("choices")) CHECK(e.at("choices").at(0).at("finish_reason").is_null());

  const auto company = beside.answer().document();
  CHECK(company.at("choices") == alone.at("choices"));
  CHECK(runtime::wait_until(
      [&] {
        const auto text = s.ask(get("/metrics")).body;
        return text.find("troupe_kv_pages{state=\"used\"} 0\n") != std::string::npos;
      },
      soon_s, 0.05));
}
