/* The stand-in model of these tests, once per program. */
#include "tests/model/fake_model.h"
