#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "cli/connection/key_file.hpp"
#include "cli/connection/server_url.hpp"
#include "cli/output/human.hpp"
#include "cli/output/interrupt.hpp"
#include "cli/verbs/serving/end_in_order.hpp"
#include "cli/verbs/serving/front_server.hpp"
#include "cli/verbs/verb.hpp"
#include "gpu/device/processors.hpp"
#include "gpu/inference/host_memory.hpp"
#include "gpu/inference/weights.hpp"
#include "runtime/host/log.hpp"
#include "runtime/host/pause.hpp"
#include "runtime/host/real_clock.hpp"
#include "web/openai/batch_loop.hpp"
#include "web/openai/served_adapters.hpp"
#include "web/openai/service.hpp"

namespace troupe::cli {

namespace {

/// Two uses: a model on this machine, or a front of a cluster, whose decoders are jobs.
class serve_verb final : public verb {
 public:
  void options(CLI::App& app) override {
    app.add_option("MODEL", model_,
                   "Hugging Face model folder: config.json, *.safetensors, and a tokenizer unless "
                   "tokens are bytes; not with --cluster");
    port_option_ =
        app.add_option("--port", port_,
                       "TCP port; 0: any that is free (default: 8000; with --cluster, as in the "
                       "cluster file, else any)")
            ->check(CLI::Range(0, 65535));
    host_option_ =
        app.add_option("--host", host_,
                       "IP address to listen on; an address that is not loopback requires --keys")
            ->capture_default_str();
    app.add_option("--keys", keys_,
                   "File with the SHA-256 of each API key, one a line; without it, everybody who "
                   "can connect may use the model. With --cluster: the cluster's key directory");
    app.add_option("--allow-origin", origins_,
                   "Origin of web pages that may read answers in a browser (https://chat.example; "
                   "'*': all); may be repeated. Default: none")
        ->allow_extra_args(false);
    app.add_option("--name", names_,
                   "Name of the model (default: its folder's); may be repeated: each is another "
                   "name of it. With --cluster: the front's name")
        ->allow_extra_args(false);
    app.add_option("--grace", grace_s_,
                   "Seconds that running answers have after SIGTERM or SIGINT; a second signal "
                   "ends them")
        ->check(CLI::Range(0.0, 86'400.0))
        ->capture_default_str();
    app.add_option("--max-body-mb", max_body_mb_, "MB that a request's body may have")
        ->check(CLI::Range(1, 1'000))
        ->capture_default_str();
    app.add_flag("--access-log", front_.logs,
                 "Write a line for each request: method, path, status, seconds and X-Request-Id");
    app.add_option("--running", limits_.running, "Choices that are generated at a time")
        ->check(CLI::Range(1, 4096))
        ->capture_default_str();
    app.add_option("--max-choices", limits_.sequences,
                   "Choices that are generated or wait; requests beyond them are declined")
        ->check(CLI::Range(1, 1'000'000))
        ->capture_default_str();
    // Its name before 0.3: read until 0.4, and not listed by --help.
    old_limit_option_ = app.add_option("--most-choices", limits_.sequences)
                            ->check(CLI::Range(1, 1'000'000))
                            ->excludes("--max-choices")
                            ->group("");
    app.add_option("--kv-pages", pages_,
                   "Pages of the cache, 64 positions each (default: for all choices at the longest "
                   "context, but at most 2 GB, and at least one context if half of the memory "
                   "beside the weights holds it)")
        ->check(CLI::Range(1, 100'000'000));
    app.add_option("--threads", threads_,
                   "Threads that compute; answers do not depend on it (default: as many as this "
                   "process may use processors)");
    app.add_option("--random-weights", random_,
                   "Use random weights of this seed; the folder needs no *.safetensors");
    app.add_option(
           "--adapter", adapters_,
           "NAME=FOLDER: a LoRA adapter of the model in PEFT's format, served under NAME; may be "
           "repeated")
        ->allow_extra_args(false);
    app.add_option(
        "--adapters", adapters_folder_,
        "Folder of adapter folders, each served under its folder's name; reloaded on SIGHUP");
    front_options(app);
  }

  int run(output& out) override {
    if (old_limit_option_->count() > 0)
      out.note("troupe: --most-choices is now --max-choices; the old name is read until 0.4");
    if (!front_.host.cluster_file.empty()) return run_as_front(out);
    if (model_.empty()) return out.bad("give a MODEL folder, or --cluster, --name and --state");
    const auto threads =
        threads_.value_or(std::min(gpu::usable_processors(), gpu::max_inference_threads));
    if (auto ok = gpu::check_threads("--threads", threads); !ok) return out.bad(ok.error());
    interrupt stop;
    auto keys = key_file::read(keys_, host_, "--keys");
    if (!keys) return out.bad(keys.error());
    const auto names = names_of_model();
    auto served = web::read_served_model(names.front(), model_);
    if (!served) return out.bad(served.error());
    const auto& model = served->model;
    const auto memory = gpu::host_memory_bytes();
    const auto team = static_cast<std::uint32_t>(threads);
    auto adapters = read_adapters(model, names);
    if (!adapters) return out.bad(adapters.error());
    auto spec = gpu::whole_model(model, pages_of(model, team, memory, adapters->bytes()));
    if (auto ok =
            gpu::check_cache(model, spec.pages, team, memory, "--kv-pages", adapters->bytes());
        !ok)
      return out.bad(ok.error());
    spec.weights = model_;
    spec.seed = random_;
    spec.threads = team;
    auto device = gpu::make_cpu_inference_device(spec);
    if (!device) return out.bad(device.error());
    // Declared in the order of use: the server ends first, then the service with its generators.
    const runtime::real_clock clock;
    web::service service{std::move(*keys), clock, start_seed(clock)};
    service.allow_origins(origins_);
    if (front_.logs) service.log_requests();
    const std::shared_ptr<web::generator> by =
        web::make_batch_loop(std::move(*device), served->words, limits_);
    for (const auto& name : names) {
      auto alias = *served;
      alias.name = name;
      service.offer(std::move(alias), by);
    }
    adapters->offer(service, *served, by);
    const auto server = web::http_server::start(
        host_, static_cast<std::uint16_t>(port_), http_limits_of(max_body_mb_),
        [&](const web::http_request& r, std::shared_ptr<web::http_reply> reply) {
          service.handle(r, std::move(reply));
        });
    if (!server) return out.bad(server.error());
    // Other servers apply them, so answers may differ.
    for (const auto& key : model.ignored_keys)
      out.note("{}: generation_config.json: {} is not applied", model_, key);
    if (!served->words)
      out.note("{}: {}; prompts are token numbers, and there are no chats", model_,
               served->no_words);
    // Keys can be withdrawn without ending the streams of others.
    key_file reloaded{keys_, service};
    show(out, (*server)->port(), *served, names, spec, *adapters);
    while (!stop.arrived()) {
      runtime::pause(0.05);
      if (reloaded.look()) read_again(*adapters, service, *served, by, rest_of(spec, memory));
    }
    end_in_order(out, service, **server, grace_s_);
    return exit_done;
  }

 private:
  void front_options(CLI::App& app) {
    const auto in_cluster = [&](const char* name, std::string& to, const char* what) {
      app.add_option(name, to, what)->group("As a front of a cluster");
    };
    in_cluster("--cluster", front_.host.cluster_file,
               "Cluster file: run the front --name of this cluster; its models are `serve` jobs");
    in_cluster("--state", front_.host.state, "State directory of this front");
    in_cluster("--gateway", front_.host.upstream,
               "Gateway address (default: from the cluster file)");
    in_cluster("--api-keys", front_.api_keys,
               "File of API keys, as --keys without --cluster; SIGHUP reads it again");
    app.add_option("--model", folders_,
                   "NAME=DIR: the folder of a model's tokenizer on this machine (default: where "
                   "its decoders have it); may be repeated")
        ->group("As a front of a cluster");
  }

  int run_as_front(output& out) {
    if (!model_.empty()) return out.bad("with --cluster, models are jobs: give no MODEL");
    if (!adapters_.empty() || !adapters_folder_.empty())
      return out.bad(
          "--adapter and --adapters need a MODEL: they are not supported with --cluster yet");
    if (names_.size() != 1 || front_.host.state.empty())
      return out.bad("--cluster needs one --name, the front's, and --state");
    front_.name = names_.front();
    front_.grace_s = grace_s_;
    front_.limits = http_limits_of(max_body_mb_);
    front_.host.keys = keys_;
    front_.origins = origins_;
    // Only what the user gave replaces the cluster file's address.
    if (host_option_->count() > 0) front_.at = host_;
    if (port_option_->count() > 0) front_.port = port_;
    for (const auto& f : folders_) {
      const auto sign = f.find('=');
      if (sign == std::string::npos)
        return out.bad(fmt::format("--model {}: expected NAME=DIR", f));
      front_.folders[f.substr(0, sign)] = f.substr(sign + 1);
    }
    return run_front(out, std::move(front_));
  }

  expected<web::served_adapters> read_adapters(const gpu::inference_model& m,
                                               const std::vector<std::string>& names) const {
    std::vector<web::served_adapters::source> listed;
    for (const auto& a : adapters_) {
      const auto sign = a.find('=');
      if (sign == std::string::npos || sign == 0)
        return refuse(reason::kind::invalid,
                      fmt::format("--adapter: found {}, expected NAME=FOLDER", a));
      listed.push_back({a.substr(0, sign), a.substr(sign + 1)});
    }
    return web::served_adapters::read(model_, m, std::move(listed), adapters_folder_, names);
  }

  /// Bytes that adapters can have beside the weights and the cache.
  static std::uint64_t rest_of(const gpu::inference_spec& s, std::uint64_t memory) {
    const auto taken = gpu::weight_bytes(s.model) + gpu::cache_bytes(s.model, s.pages) +
                       gpu::attention_bytes(s.model, s.pages, s.threads);
    return memory > taken ? memory - taken : 0;
  }

  // A folder that is half written must not end answers.
  void read_again(web::served_adapters& adapters, web::service& service,
                  const web::served_model& served, const std::shared_ptr<web::generator>& by,
                  std::uint64_t max_bytes) const {
    if (adapters_folder_.empty()) return;
    if (auto ok = adapters.read_again(service, served, by, max_bytes); !ok)
      runtime::log(runtime::log_level::error, "serve",
                   "keeps the adapters that are served: reloading failed",
                   {{"why", ok.error().text}});
    else
      runtime::log(runtime::log_level::info, "serve", "reloaded the adapters",
                   {{"folder", adapters_folder_}});
  }

  std::uint32_t pages_of(const gpu::inference_model& m, std::uint32_t threads, std::uint64_t memory,
                         std::uint64_t adapter_bytes) const {
    if (pages_) return *pages_;
    constexpr std::uint64_t max_bytes = 2'000'000'000;
    const std::uint64_t context = gpu::pages_for(m.positions);
    // A page of the model is one of each layer. The cache has one whole context, or a prompt of the
    // allowed length could never run, unless the host is too small for that.
    const auto affordable = max_bytes / gpu::cache_bytes(m, 1);
    const auto wanted = std::max(context, std::min(affordable, context * limits_.running));
    return static_cast<std::uint32_t>(
        std::min<std::uint64_t>(wanted, gpu::affordable_pages(m, threads, memory, adapter_bytes)));
  }

  static web::http_limits http_limits_of(std::uint64_t max_body_mb) {
    web::http_limits l;
    l.body_bytes = max_body_mb * 1'000'000;
    l.bodies_bytes = std::max(l.bodies_bytes, 2 * l.body_bytes);
    return l;
  }

  std::vector<std::string> names_of_model() const {
    if (!names_.empty()) return names_;
    // "." and a path with a slash at its end have a name, too.
    const auto whole = std::filesystem::weakly_canonical(model_);
    return {whole.filename().string()};
  }

  void show(output& out, std::uint16_t port, const web::served_model& served,
            const std::vector<std::string>& names, const gpu::inference_spec& spec,
            const web::served_adapters& adapters) const {
    const auto pages = spec.pages;
    const auto url = url_of(host_, port);
    const auto& m = served.model;
    const auto cache = static_cast<double>(gpu::cache_bytes(m, pages));
    const auto weights = static_cast<double>(gpu::weight_bytes(m));
    const auto& problem = served.chats.problem();
    const bool has_chats = served.words && problem.empty();
    if (!problem.empty()) out.note("chats are refused, completions are not: {}", problem);
    if (pages < gpu::pages_for(m.positions))
      out.note(
          "the cache holds {} positions and the model's context is {}: longer prompts and answers "
          "are refused; --kv-pages sets it",
          std::uint64_t{pages} * gpu::tile_positions, m.positions);
    out.document({{"url", url},
                  {"metrics", url + "/metrics"},
                  {"models", names},
                  {"adapters", document_of(adapters)},
                  {"chat_format", has_chats ? json(served.chats.name()) : json()},
                  {"chat_problem", problem.empty() ? json() : json(problem)},
                  {"context", m.positions},
                  {"weight_bytes", weights},
                  {"cache_bytes", cache},
                  {"threads", spec.threads},
                  {"pid", ::getpid()}});
    out.line("{} at {}/v1; Ctrl-C ends it", served.name, url);
    for (const auto& a : adapters.all())
      out.line("adapter {}: {}, rank {}, {} matrices", a.name, a.adapter->folder.string(),
               a.adapter->rank, grouped(a.adapter->tensors));
    out.line("context {} tokens; memory: weights {}, cache {} ({} pages of {} positions); {}",
             grouped(m.positions), size_text(weights), size_text(cache), grouped(pages),
             gpu::tile_positions, counted(spec.threads, "thread"));
    (void)flush_output();
  }

  static json document_of(const web::served_adapters& adapters) {
    auto all = json::array();
    for (const auto& a : adapters.all())
      all.push_back({{"name", a.name},
                     {"folder", a.adapter->folder.string()},
                     {"rank", a.adapter->rank},
                     {"sha256", a.adapter->sha256}});
    return all;
  }

  std::string model_, host_ = "127.0.0.1", keys_, adapters_folder_;
  std::vector<std::string> names_, adapters_;
  double grace_s_ = 30;
  std::uint64_t max_body_mb_ = 16;
  int port_ = 8000;
  CLI::Option* old_limit_option_ = nullptr;
  web::batch_limits limits_;
  std::optional<std::uint32_t> pages_;
  std::optional<std::uint64_t> random_, threads_;
  CLI::Option* port_option_ = nullptr;
  CLI::Option* host_option_ = nullptr;
  std::vector<std::string> folders_, origins_;
  front_server_options front_;
};

}  // namespace

std::unique_ptr<verb> make_serve() {
  return std::make_unique<serve_verb>();
}

}  // namespace troupe::cli
