/* The stand-in model of this test program. */
#include "tests/model/fake_model.h"
