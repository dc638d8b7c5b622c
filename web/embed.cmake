# Writes FILE, a C++ source with the files PATHS (separated by commas) for web/dashboard/dashboard_page.hpp. Files of a
# folder report/ get a path without a leading '/': no request can ask for it.
set(html "text/html; charset=utf-8")
set(css "text/css; charset=utf-8")
set(js "text/javascript; charset=utf-8")
set(svg "image/svg+xml")
string(REPLACE "," ";" paths "${PATHS}")
set(all "")
foreach(file IN LISTS paths)
  file(READ ${file} hex HEX)
  get_filename_component(name ${file} NAME)
  get_filename_component(folder ${file} DIRECTORY)
  string(LENGTH "${hex}" digits)
  math(EXPR size "${digits} / 2")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "\\\\x\\1" bytes "${hex}")
  # In short literals, which the compiler concatenates.
  string(REGEX REPLACE "(................................................................................)" "\\1\"\n    \"" bytes "${bytes}")
  get_filename_component(extension ${name} LAST_EXT)
  string(SUBSTRING "${extension}" 1 -1 extension)
  if(name STREQUAL "index.html")
    set(path "/")
  elseif(folder MATCHES "/report$")
    set(path "report/${name}")
  else()
    set(path "/page/${name}")
  endif()
  string(APPEND all "    {\"${path}\", \"${${extension}}\",\n    {\"${bytes}\", ${size}}},\n")
endforeach()
file(WRITE ${FILE} "#include \"web/dashboard/dashboard_page.hpp\"

namespace troupe::web {

std::span<const page_file> page_files() {
  static const page_file all[] = {
${all}  };
  return all;
}

}  // namespace troupe::web
")
