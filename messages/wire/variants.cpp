#include "messages/wire/journal.hpp"
#include "messages/wire/large_variant_members.hpp"
#include "messages/wire/message.hpp"

namespace troupe {

template class large_variant<any_message>;
template class large_variant<any_journal_entry>;

}  // namespace troupe
