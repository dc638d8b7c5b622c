#define Eigen Eigen_plain
#define TROUPE_PRODUCT plain_product
#include "gpu/cpu/products.inc.hpp"
