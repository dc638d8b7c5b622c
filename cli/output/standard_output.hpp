#pragma once

#include <string_view>

/// Everything that the program writes to standard output passes here, so that no failed write
/// (a full disk, a closed descriptor) can go unnoticed: a script would take what is there for the
/// whole.
namespace troupe::cli {

/// Opens the standard descriptors that this process was started without, so that no file or
/// connection gets their numbers. They stay unusable: using one fails as if it were closed. To be
/// called first.
void keep_standard_descriptors();

/// Appends to standard output, buffered.
void write_output(std::string_view bytes);

/// Writes to standard error. Nobody can be told of a failure.
void write_note(std::string_view text);

/// Writes what is buffered. False: what is written from now on reaches nobody, because a write has
/// failed (finish_output() will say so) or the reader has gone away.
bool flush_output();

/// The exit status of the program whose own is `status`: writes what is buffered, and if that or
/// an earlier write has failed, says so on standard error and makes exit_done exit_no. A reader
/// that has gone away has what it wanted: that is no failure. To be called last.
int finish_output(int status);

}  // namespace troupe::cli
