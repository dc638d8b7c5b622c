#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include "cli/common/interrupt.hpp"
#include "cli/verbs/verb.hpp"
#include "runtime/host/pause.hpp"
#include "runtime/host/real_clock.hpp"
#include "web/service.hpp"

namespace troupe::cli {

namespace {

class serve_verb final : public verb {
 public:
  void options(CLI::App& app) override {
    app.add_option("MODEL", model_,
                   "Hugging Face model folder: config.json, *.safetensors, and a tokenizer unless "
                   "tokens are bytes")
        ->required();
    app.add_option("--port", port_, "TCP port; 0: any that is free")->capture_default_str();
    app.add_option("--host", host_,
                   "IP address to listen on; one that other machines can reach "
                   "needs --keys")
        ->capture_default_str();
    app.add_option("--keys", keys_file_,
                   "File with the SHA-256 of each API key, one a line; without it, everybody who "
                   "can connect may use the model");
    app.add_option("--name", name_, "Name of the model (default: its folder's)");
    app.add_option("--running", limits_.running, "Choices that are generated at a time")
        ->check(CLI::Range(1, 4096))
        ->capture_default_str();
    app.add_option("--most-choices", limits_.sequences,
                   "Choices that are generated or wait; requests beyond them are declined")
        ->check(CLI::Range(1, 1'000'000))
        ->capture_default_str();
    app.add_option("--kv-pages", pages_,
                   "Pages of the cache, 64 positions each (default: for all choices at the longest "
                   "context, but at most 2 GB, and at least one context)")
        ->check(CLI::Range(1, 100'000'000));
    app.add_option("--random-weights", random_,
                   "Use random weights of this seed; the folder needs no *.safetensors");
  }

  int run(output& out) override {
    interrupt stop;
    std::optional<web::api_keys> keys;
    if (auto ok = open_keys(keys); !ok) return out.bad(ok.error());
    const auto model = gpu::read_inference_model(model_);
    if (!model) return out.bad(model.error());
    auto words = gpu::open_tokenizer(model_, model->vocabulary);
    if (!words) return out.bad(words.error());
    auto spec = gpu::whole_model(*model, pages_of(*model));
    spec.weights = model_;
    spec.seed = random_;
    auto device = gpu::make_cpu_inference_device(spec);
    if (!device) return out.bad(device.error());
    web::served_model served{name_of_model(), *model, std::move(*words), {}};
    if (served.words) served.format = gpu::chat_format_of(*served.words, model_);
    const runtime::real_clock clock;
    web::service service{served, std::move(*device), limits_, std::move(keys), clock, seed(clock)};
    const auto server = web::http_server::start(
        host_, port_, {}, [&](const web::http_request& r, std::shared_ptr<web::http_reply> reply) {
          service.handle(r, std::move(reply));
        });
    if (!server) return out.bad(server.error());
    show(out, (*server)->port(), served);
    while (!stop.arrived()) runtime::pause(0.05);
    return exit_done;
  }

 private:
  expected<void> open_keys(std::optional<web::api_keys>& keys) const {
    const auto loopback = web::is_loopback(host_);
    if (!loopback) return refuse(loopback.error());
    if (!keys_file_.empty()) {
      auto read = web::api_keys::read(keys_file_);
      if (!read) return refuse(read.error());
      keys = std::move(*read);
    }
    if (*loopback || keys) return {};
    return refuse(reason::kind::invalid,
                  fmt::format("--host {}: other machines can reach this address, so give --keys, a "
                              "file with the SHA-256 of each API key",
                              host_));
  }

  std::uint32_t pages_of(const gpu::inference_model& m) const {
    if (pages_) return *pages_;
    constexpr std::uint64_t most_bytes = 2'000'000'000;
    const std::uint64_t context = gpu::pages_for(m.positions);
    const auto affordable = most_bytes / (gpu::page_bytes(m) * m.layers);
    return static_cast<std::uint32_t>(
        std::max(context, std::min(affordable, context * limits_.running)));
  }

  std::string name_of_model() const {
    if (!name_.empty()) return name_;
    const auto whole = std::filesystem::weakly_canonical(model_);
    return whole.filename().string();
  }

  /// Differs from start to start; nothing depends on nobody knowing it.
  static std::uint64_t seed(const runtime::clock& clock) {
    return static_cast<std::uint64_t>(std::llround(clock.wall_s() * 1e6)) ^
           static_cast<std::uint64_t>(::getpid()) << 44;
  }

  void show(output& out, std::uint16_t port, const web::served_model& served) const {
    const bool v6 = host_.find(':') != std::string::npos;
    const auto url = fmt::format("http://{}:{}", v6 ? "[" + host_ + "]" : host_, port);
    out.document({{"url", url},
                  {"metrics", url + "/metrics"},
                  {"models", json::array({served.name})},
                  {"chat_format", served.words ? json(gpu::name_of(served.format)) : json()},
                  {"pid", ::getpid()}});
    out.line("{} at {}/v1; Ctrl-C ends it", served.name, url);
    std::fflush(stdout);
  }

  std::string model_, host_ = "127.0.0.1", keys_file_, name_;
  std::uint16_t port_ = 8000;
  web::batch_limits limits_;
  std::optional<std::uint32_t> pages_;
  std::optional<std::uint64_t> random_;
};

}  // namespace

std::unique_ptr<verb> make_serve() {
  return std::make_unique<serve_verb>();
}

}  // namespace troupe::cli
