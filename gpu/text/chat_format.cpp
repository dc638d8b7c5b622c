#include "gpu/text/chat_format.hpp"

#include <system_error>

#include "gpu/model/json_file.hpp"

namespace troupe::gpu {

namespace {

/// A prompt as it is written: one text, since tokens may cross from a message into what surrounds
/// it, in which only the names of this format's own special tokens are such tokens.
class prompt_writer {
 public:
  explicit prompt_writer(const tokenizer& t) : tokenizer_{t} {}

  void special(std::string_view name) {
    if (tokenizer_.special(name)) text_ += name;
  }
  void text(std::string_view t) {
    if (t.empty()) return;
    literal_.push_back({text_.size(), text_.size() + t.size()});
    text_ += t;
  }
  std::vector<std::uint32_t> take() const { return tokenizer_.encode(text_, literal_); }

 private:
  const tokenizer& tokenizer_;
  std::string text_;
  std::vector<text_range> literal_;
};

void write_chatml(prompt_writer& w, std::span<const chat_message> messages) {
  for (const auto& m : messages) {
    w.special("<|im_start|>");
    w.text(m.role + "\n" + m.text);
    w.special("<|im_end|>");
    w.text("\n");
  }
  w.special("<|im_start|>");
  w.text("assistant\n");
}

void write_llama3(prompt_writer& w, std::span<const chat_message> messages) {
  const auto header = [&](const std::string& role) {
    w.special("<|start_header_id|>");
    w.text(role);
    w.special("<|end_header_id|>");
    w.text("\n\n");
  };
  w.special("<|begin_of_text|>");
  for (const auto& m : messages) {
    header(m.role);
    w.text(m.text);
    w.special("<|eot_id|>");
  }
  header("assistant");
}

/// Old tokenizers have the brackets as text.
void write_bracket(prompt_writer& w, const tokenizer& t, std::string_view name) {
  if (t.special(name))
    w.special(name);
  else
    w.text(name);
}

void write_instruction(prompt_writer& w, const tokenizer& t,
                       std::span<const chat_message> messages) {
  std::string system;
  w.special("<s>");
  for (const auto& m : messages) {
    if (m.role == "system") {
      system += m.text + "\n\n";
    } else if (m.role == "assistant") {
      w.text(" " + m.text);
      w.special("</s>");
    } else {
      write_bracket(w, t, "[INST]");
      w.text(" " + system + m.text + " ");
      write_bracket(w, t, "[/INST]");
      system.clear();
    }
  }
}

void write_plain(prompt_writer& w, std::span<const chat_message> messages) {
  for (const auto& m : messages) w.text(m.role + ": " + m.text + "\n");
  w.text("assistant:");
}

/// Does tokenizer_config.json have a template that mentions it?
bool template_mentions(const std::filesystem::path& folder, std::string_view what) {
  constexpr std::size_t limit_bytes = 16u << 20;
  const auto config = read_json_file(folder / "tokenizer_config.json", limit_bytes);
  return config && config->contains("chat_template") &&
         (*config)["chat_template"].dump().find(what) != std::string::npos;
}

}  // namespace

std::string_view name_of(chat_format f) {
  constexpr std::string_view names[] = {"chatml", "llama3", "instruction", "plain"};
  return names[static_cast<std::size_t>(f)];
}

chat_format chat_format_of(const tokenizer& t, const std::filesystem::path& folder) {
  if (t.special("<|im_start|>") && t.special("<|im_end|>")) return chat_format::chatml;
  if (t.special("<|start_header_id|>") && t.special("<|eot_id|>")) return chat_format::llama3;
  if (t.special("[INST]") || template_mentions(folder, "[INST]")) return chat_format::instruction;
  return chat_format::plain;
}

std::vector<std::uint32_t> chat_prompt(const tokenizer& t, chat_format f,
                                       std::span<const chat_message> messages) {
  prompt_writer w{t};
  switch (f) {
    case chat_format::chatml:
      write_chatml(w, messages);
      break;
    case chat_format::llama3:
      write_llama3(w, messages);
      break;
    case chat_format::instruction:
      write_instruction(w, t, messages);
      break;
    case chat_format::plain:
      write_plain(w, messages);
  }
  return w.take();
}

std::vector<std::uint32_t> chat_ends(const tokenizer& t, chat_format f) {
  const auto end = f == chat_format::chatml   ? t.special("<|im_end|>")
                   : f == chat_format::llama3 ? t.special("<|eot_id|>")
                                              : t.special("</s>");
  return end ? std::vector{*end} : std::vector<std::uint32_t>{};
}

}  // namespace troupe::gpu
