#include "gpu/model/export.hpp"
#include "cli/verbs/verb.hpp"
#include "formats/load/load.hpp"

namespace troupe::cli {

namespace {

/// A training's checkpoint as a Hugging Face model folder, which `troupe serve` and other programs
/// read.
class export_verb final : public verb {
 public:
  void options(CLI::App& app) override {
    app.add_option("CHECKPOINT", checkpoint_,
                   "A job's `checkpoint:` directory (the newest checkpoint is used), or one "
                   "checkpoint in it")
        ->required();
    app.add_option("DIR", to_, "Folder to create")->required();
    app.add_option(
        "--job", job_,
        "Job file, for a checkpoint that does not record its model, and for the job's tokenizer");
    app.add_option("--tokenizer", tokenizer_,
                   "Folder with vocab.json and merges.txt, if the text was tokenized with them");
    app.footer("Load the folder with GPT2LMHeadModel.from_pretrained of Python's transformers.");
  }

  int run(output& out) override {
    gpu::export_wish wish{checkpoint_, to_, {}, tokenizer_};
    if (!job_.empty()) {
      auto job = formats::load_job(job_);
      if (!job) return out.bad(job.error());
      wish.model = job->model;
      // The job's own tokenizer is right unless the user has moved it.
      if (tokenizer_.empty() && job->train) wish.tokenizer = job->train->vocabulary;
    }
    // The checkpoint has the weights of all stages, however many: the folder has one model.
    const auto done = gpu::export_model(wish);
    if (!done) return out.failure(done.error());
    out.document({{"directory", to_},
                  {"checkpoint", done->from.string()},
                  {"iteration", done->iteration},
                  {"parameters", done->parameters},
                  {"tokenizer", done->of_bytes           ? json("bytes")
                                : wish.tokenizer.empty() ? json()
                                                         : json(wish.tokenizer.string())}});
    out.line("{}: config.json and model.safetensors, {} parameters after {} iterations", to_,
             done->parameters, done->iteration);
    if (done->of_bytes)
      out.line("tokenizer.json: each byte is a token");
    else if (wish.tokenizer.empty())
      out.line("no tokenizer: give --tokenizer or --job for that of the training's text");
    return exit_done;
  }

 private:
  std::string checkpoint_, to_, job_, tokenizer_;
};

}  // namespace

std::unique_ptr<verb> make_export() {
  return std::make_unique<export_verb>();
}

}  // namespace troupe::cli
