#pragma once

#include <filesystem>

#include "formats/traces/trace.hpp"

// The importers behind import_jobs(): docs/traces.md has the formats, and what each leaves out.

namespace troupe::formats {

/// Microsoft Philly as its authors published it: cluster_job_log, a JSON list.
expected<imported_trace> import_philly_json(const std::filesystem::path& file,
                                            const trace_window& window);
/// SenseTime's Helios: cluster_log.csv.
expected<imported_trace> import_helios(const std::filesystem::path& file,
                                       const trace_window& window);
/// Alibaba PAI, 2020: pai_task_table.csv, with or without its header line.
expected<imported_trace> import_pai(const std::filesystem::path& file, const trace_window& window);
/// Alibaba, 2023: openb_pod_list_*.csv.
expected<imported_trace> import_openb(const std::filesystem::path& file,
                                      const trace_window& window);
/// Workloads of Sia's artifact; they have no durations.
expected<imported_trace> import_sia(const std::filesystem::path& file, const trace_window& window);
/// Traces of Gavel's repository (tab-separated, four layouts); they have steps and no durations.
expected<imported_trace> import_gavel(const std::filesystem::path& file,
                                      const trace_window& window);
/// Workloads of ElasticFlow's artifact, with models, iterations and deadlines.
expected<imported_trace> import_elasticflow(const std::filesystem::path& file,
                                            const trace_window& window);

}  // namespace troupe::formats
