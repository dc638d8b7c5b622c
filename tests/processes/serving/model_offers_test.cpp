#include "web/front/model_offers.hpp"

#include <algorithm>
#include <atomic>
#include <future>
#include <mutex>

#include "harness/scratch.hpp"
#include "processes/fixture.hpp"
#include "runtime/host/log.hpp"
#include "runtime/host/wait.hpp"
#include "web/http/http_client.hpp"
#include "web/http/http_server.hpp"

// Which models a front offers, by what it knows of its cluster.

using namespace troupe;
using namespace troupe::test;

namespace {

class clock_by_hand final : public runtime::clock {
 public:
  double now_s() const override { return s; }
  double wall_s() const override { return s; }
  std::atomic<double> s = 1;
};

/// A front whose knowledge the test writes, with its HTTP server.
struct front_by_hand {
  front_by_hand() {
    auto started = web::http_server::start(
        "127.0.0.1", 0, {}, [this](const auto& r, auto reply) { service.handle(r, reply); });
    REQUIRE(started);
    server = std::move(*started);
    service.expect([this](const std::string& name) { return front.view().may_be_offered(name); });
    front.connect({[this](std::uint64_t n, const auto&, actors::completion_listener l) {
                     const std::lock_guard hold{mutex};
                     number = n;
                     listener = std::move(l);
                   },
                   [](std::uint64_t, bool) {}});
  }

  /// The controller and a decoder report that this folder's files are served as this model.
  void serve(const std::string& name, const std::string& folder, std::uint64_t files) {
    view.has_statement = true;
    view.served.insert(name);
    view.models[name] = {folder, files, 1, 64, 10, 10, 0, 0, 8};
    look();
  }
  void cancel(const std::string& name) {
    view.served.erase(name);
    view.models.erase(name);
    look();
  }
  void look() {
    front.publish(view);
    offers.look();
  }

  web::client_answer ask(const std::string& path, const std::string& body = {}) const {
    const web::server_place at{"127.0.0.1", server->port(), {}};
    auto a = web::ask(at, {body.empty() ? "GET" : "POST", path, body, {}, long_s});
    return a ? std::move(*a) : web::client_answer{};
  }
  /// The answer to a token that no model has.
  web::client_answer refused(const std::string& name) const {
    return ask("/v1/completions", R"({"model": ")" + name + R"(", "prompt": [100000]})");
  }
  /// The model is offered, with a vocabulary of this size.
  bool offers_with(const std::string& name, int vocabulary) const {
    return runtime::wait_until(
        [&] {
          return refused(name).body.find(fmt::format("vocabulary of {}", vocabulary)) !=
                 std::string::npos;
        },
        long_s, 0.01);
  }

  actors::completions front;
  actors::front_view view;
  clock_by_hand clock;
  std::mutex mutex;
  std::uint64_t number = 0;
  actors::completion_listener listener;
  web::service service{std::nullopt, clock, 1};
  std::unique_ptr<web::http_server> server;
  web::model_offers offers{front, shared_cluster{troupe::cluster{}}, {}, clock, service};
};

/// A model without a tokenizer, of this vocabulary.
void write_folder(const std::string& folder, int vocabulary) {
  fs::create_directories(folder);
  std::ofstream{folder + "/config.json"}
      << R"({"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 1, "n_positions": 64, )"
      << R"("n_inner": 32, "activation_function": "gelu_new", "vocab_size": )" << vocabulary << "}";
}

}  // namespace

TEST_CASE("a front reads a folder again when its files have changed, and a failed one later") {
  const scratch dir;
  front_by_hand f;
  CHECK(f.refused("a").status == 503);  // the controller has sent nothing yet
  write_folder(dir / "a", 300);
  f.serve("a", dir / "a", 1);
  REQUIRE(f.offers_with("a", 300));
  // Cancelled, written again and served again.
  write_folder(dir / "a", 400);
  f.serve("a", dir / "a", 2);
  CHECK(f.offers_with("a", 400));
  f.cancel("a");
  CHECK(f.refused("a").status == 404);
  write_folder(dir / "a", 500);
  f.serve("a", dir / "a", 2);
  CHECK(f.offers_with("a", 500));
  // A folder that is not there yet.
  f.serve("b", dir / "b", 3);
  CHECK(f.refused("b").status == 503);
  runtime::pause(0.2);
  f.look();
  write_folder(dir / "b", 600);
  f.clock.s = f.clock.s + web::model_offers::retry_s - 1;
  f.look();
  runtime::pause(0.2);
  CHECK(f.refused("b").status == 503);
  f.clock.s = f.clock.s + 1;
  f.look();
  CHECK(f.offers_with("b", 600));
  CHECK(f.offers_with("a", 500));
}

TEST_CASE("a model that is cancelled is 404, what it is asked for ends, and its metrics go") {
  const scratch dir;
  front_by_hand f;
  write_folder(dir / "a", 300);
  for (int i = 0; i < 20; ++i) {
    const auto name = fmt::format("name-{}", i);
    f.serve(name, dir / "a", 1);
    REQUIRE(f.offers_with(name, 300));
    if (i < 19) f.cancel(name);
  }
  auto answer = std::async(std::launch::async, [&] {
    return f.ask(
        "/v1/completions",
        R"({"model": "name-19", "prompt": [7], "max_tokens": 2, "return_token_ids": true})");
  });
  REQUIRE(runtime::wait_until(
      [&] {
        const std::lock_guard hold{f.mutex};
        return f.listener != nullptr;
      },
      long_s, 0.01));
  f.cancel("name-19");
  CHECK(f.refused("name-19").status == 404);
  actors::completion_update sent;
  sent.number = f.number;
  sent.tokens = {{{8, -1}, {}}, {{9, -1}, {}}};
  f.listener(sent);
  const auto a = answer.get();
  CHECK(a.status == 200);
  CHECK(a.body.find("\"token_ids\":[8,9]") != std::string::npos);
  CHECK(f.ask("/metrics").body.find("name-") == std::string::npos);
}

TEST_CASE("a name is 503 while it may be an adapter of a model whose decoder is not ready") {
  const scratch dir;
  front_by_hand f;
  write_folder(dir / "a", 300);
  f.view.has_statement = true;
  f.view.served.insert("a");
  f.look();
  CHECK(f.refused("of-a").status == 503);
  f.view.models["a"].adapters = {"of-a"};
  f.serve("a", dir / "a", 1);
  CHECK(f.refused("of-b").status == 404);
  REQUIRE(f.offers_with("a", 300));
  // Its decoder has another one, and then is lost.
  f.view.models["a"].adapters = {"of-b"};
  f.front.publish(f.view);
  CHECK(f.refused("of-b").status == 503);
  f.view.models.clear();
  f.look();
  CHECK(f.refused("of-c").status == 503);
  f.cancel("a");
  CHECK(f.refused("of-a").status == 404);
}

TEST_CASE("choices that a model's decoders can never hold are 400 at a front, those of later 429") {
  const scratch dir;
  front_by_hand f;
  write_folder(dir / "a", 300);
  f.serve("a", dir / "a", 1);
  REQUIRE(f.offers_with("a", 300));
  const auto asked = [&](const std::string& rest) {
    return f.ask("/v1/completions", R"({"model": "a", "max_tokens": 2, )" + rest + "}");
  };
  const auto has_retry_after = [](const web::client_answer& a) {
    return std::ranges::any_of(a.fields, [](const auto& field) {
      return field.first == "Retry-After" || field.first == "retry-after";
    });
  };
  // Its decoders hold eight.
  for (const std::string rest :
       {R"("prompt": [7], "n": 9)", R"("prompt": [[1], [2], [3]], "n": 3)"}) {
    const auto never = asked(rest);
    CHECK(never.status == 400);
    CHECK_FALSE(has_retry_after(never));
  }
  f.view.models["a"].running = 3, f.view.models["a"].waiting = 2;
  f.look();
  const auto later = asked(R"("prompt": [7], "n": 4)");
  CHECK(later.status == 429);
  CHECK(has_retry_after(later));
}

TEST_CASE("a front's log names each setting of generation_config.json that is not applied") {
  const scratch dir;
  front_by_hand f;
  std::mutex mutex;
  std::string lines;
  runtime::set_log_sink([&](runtime::log_level, std::string_view line) {
    const std::lock_guard hold{mutex};
    lines += std::string{line} + "\n";
  });
  write_folder(dir / "a", 300);
  std::ofstream{dir / "a/generation_config.json"}
      << R"({"suppress_tokens": [65], "max_new_tokens": 4, "temperature": 0.5})";
  f.serve("a", dir / "a", 1);
  CHECK(f.offers_with("a", 300));
  runtime::set_log_sink({});
  const std::lock_guard hold{mutex};
  CHECK_THAT(lines,
             Catch::Contains("key=suppress_tokens") && Catch::Contains("key=max_new_tokens"));
  CHECK(lines.find("key=temperature") == std::string::npos);
}
