#include <algorithm>
#include <optional>

#include "cli/connection/controller_connection.hpp"
#include "cli/output/human.hpp"
#include "cli/output/output_file.hpp"
#include "cli/verbs/serving/remote_completion.hpp"
#include "cli/verbs/verb.hpp"
#include "gpu/device/processors.hpp"
#include "gpu/inference/generate.hpp"
#include "gpu/model/safetensors.hpp"
#include "text/chat/chat_template.hpp"
#include "text/tokens/open_tokenizer.hpp"
#include "web/openai/served_adapters.hpp"

namespace troupe::cli {

namespace {

/// Completes one prompt: by a server (a front of the cluster, or any with OpenAI's API), or alone
/// in this process.
class infer_verb final : public verb {
 public:
  void options(CLI::App& app) override {
    app.add_option("PROMPT", prompt_, "Text to complete");
    app.add_flag("--alone", alone_, "Compute in this process, without a cluster");
    app.add_option(
        "--url", url_,
        "Server to ask: http://HOST:PORT (default: a front of the cluster that runs with "
        "--state)");
    app.add_option("--state", state_, "State directory of `troupe up`")->capture_default_str();
    app.add_option("--key", key_, "API key");
    app.add_option("--model", model_,
                   "With --alone the Hugging Face model folder: config.json, *.safetensors, and a "
                   "tokenizer unless tokens are bytes. Otherwise the model's name, if the server "
                   "has several");
    app.add_option("--prompt-tokens", tokens_, "Prompt as token numbers instead of text")
        ->delimiter(',')
        ->allow_extra_args(false);
    max_tokens_ = app.add_option("--max-tokens", what_.max_tokens, "Tokens to generate at most")
                      ->check(CLI::Range(1, 100'000'000))
                      ->capture_default_str();
    temperature_ =
        app.add_option("--temperature", what_.how.temperature, "0: always the most probable token")
            ->check(CLI::Range(0.0, 100.0))
            ->capture_default_str();
    top_p_ = app.add_option("--top-p", what_.how.top_p,
                            "Only the most probable tokens that together reach this probability")
                 ->check(CLI::Range(0.0, 1.0))
                 ->capture_default_str();
    top_k_ = app.add_option("--top-k", what_.how.top_k,
                            "Choose among the K most probable tokens; 0: all")
                 ->capture_default_str();
    seed_ = app.add_option("--seed", what_.how.seed, "Seed of the choice of tokens")
                ->capture_default_str();
    app.add_option("--stop", stops_, "Text that ends the completion; may be repeated")
        ->allow_extra_args(false);
    app.add_flag("--chat", chat_, "PROMPT is a message, which the model answers");
    app.add_option("--chunk", chunk_,
                   "Positions of the prompt computed at a time; the result is "
                   "the same for all")
        ->check(CLI::Range(64, 1'000'000))
        ->capture_default_str();
    app.add_option("--threads", threads_,
                   "With --alone: threads that compute; the result is the same for all")
        ->capture_default_str();
    app.add_option("--adapter", adapter_,
                   "With --alone: folder of a LoRA adapter of the model, in PEFT's format");
    app.add_option("--dump-logits", logits_file_,
                   "Write the logits of all positions to a safetensors file");
    app.add_option("--random-weights", random_,
                   "Use random weights of this seed; the folder needs no *.safetensors");
  }

  int run(output& out) override {
    // The two uses share the prompt and the sampling options, and nothing else: without --alone no
    // model is read here.
    if (!alone_) return ask_server(out);
    if (!url_.empty()) return out.bad("--alone asks no server: give no --url");
    if (model_.empty()) return out.bad("--alone needs --model, a folder");
    if (auto ok = gpu::check_threads("--threads", threads_); !ok) return out.bad(ok.error());
    const auto model = gpu::read_inference_model(model_);
    if (!model) return out.bad(model.error());
    if (!adapter_.empty()) {
      auto adapter = gpu::open_adapter(adapter_, *model, model_);
      if (!adapter) return out.bad(adapter.error());
      by_ = std::move(*adapter);
    }
    auto words = gpu::open_tokenizer(model_, model->vocabulary);
    if (!words) return out.bad(words.error());
    auto asked = generation_of(*model, words->get());
    if (!asked) return out.bad(asked.error());
    // The answer may be poor for that reason alone.
    if (chat_ && chats_.name() == "plain")
      out.note(
          "{}: it has no chat template, and its special tokens are those of no known format; the "
          "prompt is written as plain lines",
          model_);
    if (!logits_file_.empty())
      // Before minutes of computing.
      if (auto ok = can_write(logits_file_); !ok) return out.bad(ok.error());
    // Only as many pages as this prompt and its completion can fill.
    const auto positions =
        std::min<std::uint64_t>(asked->prompt.size() + what_.max_tokens, model->positions);
    auto spec = gpu::whole_model(*model, gpu::pages_for(static_cast<std::uint32_t>(positions)));
    spec.weights = model_;
    spec.seed = random_;
    spec.threads = static_cast<std::uint32_t>(threads_);
    const auto device = gpu::make_cpu_inference_device(spec);
    if (!device) return out.bad(device.error());
    gpu::completion text{asked->what, stops_, words->get()};
    // With the same device as a decoder's: the reference that served answers are compared with.
    const auto made = gpu::generate(**device, *asked, text,
                                    [&](std::string_view piece) { show_piece(out, piece); });
    if (!made) return out.bad(made.error());
    if (!logits_file_.empty())
      if (auto ok = write_logits(*made, model->vocabulary); !ok) return out.failure(ok.error());
    show(out, *asked, *made, text, words->get() != nullptr);
    return exit_done;
  }

 private:
  int ask_server(output& out) {
    // The API has neither.
    if (!logits_file_.empty() || random_ || threads_ != 1)
      return out.bad("--dump-logits, --random-weights and --threads need --alone");
    if (!adapter_.empty())
      return out.bad(
          "--adapter needs --alone; an adapter that a server offers is chosen by --model NAME");
    if (auto ok = check_prompt(); !ok) return out.bad(ok.error());
    if (url_.empty()) {
      auto found = url_of_front(state_);
      if (!found) return out.bad(found.error());
      url_ = std::move(*found);
    }
    const auto made =
        complete_remotely({url_, key_, model_, prompt_, tokens_, chat_, what_, stops_, given()},
                          [&](std::string_view piece) { show_piece(out, piece); });
    if (!made)
      // A wrong option or address is the user's mistake; a server that declines is not.
      return made.error().code == reason::kind::invalid ? out.bad(made.error())
                                                        : out.failure(made.error());
    out.document(*made);
    const auto& d = *made;
    out.text("\n");
    note_figures(out, d);
    return exit_done;
  }

  remote_prompt::options given() const {
    return {max_tokens_->count() > 0, temperature_->count() > 0, top_p_->count() > 0,
            top_k_->count() > 0, seed_->count() > 0};
  }

  expected<void> check_prompt() const {
    const auto failure = [](std::string why) {
      return refuse(reason::kind::invalid, std::move(why));
    };
    if (std::count(stops_.begin(), stops_.end(), "") > 0)
      return failure("--stop: found an empty text");
    if (chat_ && !tokens_.empty()) return failure("--chat needs a PROMPT, not --prompt-tokens");
    if (tokens_.empty() == prompt_.empty())
      return failure("give either a PROMPT or --prompt-tokens, not empty");
    return {};
  }

  expected<gpu::generation> generation_of(const gpu::inference_model& m,
                                          const gpu::tokenizer* words) {
    const auto failure = [](std::string why) {
      return refuse(reason::kind::invalid, std::move(why));
    };
    gpu::generation g;
    g.what = what_;
    g.what.last_tokens = m.last_tokens;
    g.chunk = chunk_;
    g.keep_logits = !logits_file_.empty();
    g.adapter = by_;
    // Chunks begin at a page, so that each is computed as it would be in one go: results are equal
    // bit by bit.
    if (chunk_ % gpu::tile_positions != 0)
      return failure(
          fmt::format("--chunk: found {}, expected a multiple of {}", chunk_, gpu::tile_positions));
    if (auto ok = check_prompt(); !ok) return refuse(ok.error());
    g.prompt = tokens_;
    if (tokens_.empty() && !words)
      return failure(fmt::format("{}: {}; give --prompt-tokens instead of a text", model_,
                                 gpu::missing_tokenizer_text(model_)));
    if (chat_) {
      if (auto ok = write_chat(*words, g); !ok) return refuse(ok.error());
    } else if (tokens_.empty()) {
      g.prompt = words->encode_prompt(prompt_);
    }
    g.what.prompt_tokens = static_cast<std::uint32_t>(g.prompt.size());
    return g;
  }

  expected<void> write_chat(const gpu::tokenizer& words, gpu::generation& g) {
    chats_ = gpu::chat_template::of(model_, words);
    const gpu::chat_message message{"user", prompt_};
    auto prompt = chats_.prompt(words, {&message, 1});
    if (!prompt) return refuse(prompt.error());
    g.prompt = std::move(*prompt);
    for (const auto end : chats_.ends()) g.what.last_tokens.push_back(end);
    return {};
  }

  expected<void> write_logits(const gpu::generated& made, std::uint64_t vocabulary) const {
    return gpu::write_safetensors(
        logits_file_, {{"logits", {made.logits.size() / vocabulary, vocabulary}, made.logits}}, {});
  }

  /// A model's text could have control sequences for the terminal.
  static void show_piece(const output& out, std::string_view piece) {
    static const bool terminal = terminal_columns() > 0;
    out.text(terminal ? printable(piece, true) : std::string{piece});
  }

  void show(output& out, const gpu::generation& asked, const gpu::generated& made,
            const gpu::completion& text, bool has_text) const {
    json d{{"text", has_text ? json(text.text()) : json()},
           {"tokens", text.tokens()},
           {"logprobs", text.log_probabilities()},
           {"prompt_tokens", asked.prompt.size()},
           {"completion_tokens", text.tokens().size()},
           {"finish_reason", gpu::name_of(text.finished())},
           {"ttft_ms", 1e3 * made.ttft_s},
           {"where",
            {{"prefill", "alone"},
             {"guests", json::array()},
             {"chunks", made.chunks},
             {"steps", made.steps},
             {"yields", 0},
             {"decoder", "alone"},
             {"attempts", 1}}}};
    if (chat_) d["chat_format"] = chats_.name();
    if (by_) d["adapter"] = {{"folder", adapter_}, {"rank", by_->rank}, {"sha256", by_->sha256}};
    out.document(d);
    if (has_text)
      out.text("\n");
    else
      out.line("tokens {}", fmt::join(text.tokens(), ","));
    note_figures(out, d);
  }

  static void note_figures(const output& out, const json& d) {
    const auto& finish = d["finish_reason"];
    std::string counts;
    // Other servers need not count.
    if (d["prompt_tokens"].is_number() && d["completion_tokens"].is_number())
      counts = fmt::format("{} prompt tokens, {} generated, ", d["prompt_tokens"].dump(),
                           d["completion_tokens"].dump());
    out.note("{}finish reason {}, time to first token {:.0f} ms", counts,
             finish.is_string() ? finish.get<std::string>() : "unknown",
             d["ttft_ms"].get<double>());
  }

  std::string prompt_, model_, adapter_, logits_file_, url_, key_,
      state_ = default_state_directory();
  CLI::Option *max_tokens_ = nullptr, *temperature_ = nullptr, *top_p_ = nullptr, *top_k_ = nullptr,
              *seed_ = nullptr;
  bool alone_ = false, chat_ = false;
  gpu::chat_template chats_;
  gpu::adapter_ref by_;
  std::vector<std::uint32_t> tokens_;
  completion_request what_{1, 16, {}, {}, 0, false, 0, 0};
  std::vector<std::string> stops_;
  std::uint32_t chunk_ = 512;
  std::optional<std::uint64_t> random_;
  std::uint64_t threads_ = 1;
};

}  // namespace

std::unique_ptr<verb> make_infer() {
  return std::make_unique<infer_verb>();
}

}  // namespace troupe::cli
