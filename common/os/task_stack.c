/* Stacks of tasks and the switch between them (task_stack.h). Memory is touched page by page, so a
 * stack that is never deep costs two pages. */
#include "common/os/task_stack.h"

#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/base/attrs.h"
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/os/task_switch.h"

#if defined(__SANITIZE_ADDRESS__)
#define STACK_ASAN 1
#include <sanitizer/common_interface_defs.h>
#include <sanitizer/lsan_interface.h>
#else
#define STACK_ASAN 0
#endif
#if defined(__SANITIZE_THREAD__)
#define STACK_TSAN 1
#include <sanitizer/tsan_interface.h>
#else
#define STACK_TSAN 0
#endif

/* Templates at their largest depth take 192 to 256 KiB; ASan's frames are four times as large. */
enum { STACK_BYTES = (STACK_ASAN ? 2048 : 512) << 10, GUARD_BYTES = 4096 };

struct task_stack {
    void (*run)(void *ctx);
    void *ctx;
    char *bottom; /* lowest byte above the guard */
    /* stack pointers: this stack's while it does not run, the caller's while it does */
    void *sp, *outside_sp;
#if STACK_ASAN
    void *fake, *outside_fake;
    const void *outside_bottom;
    size_t outside_bytes;
#endif
#if STACK_TSAN
    void *fiber, *outside_fiber;
#endif
};

/* --- the switch --- */

/* Calls `run` again and again; `run` reads from ctx what it must do. */
void task_stack_begin(struct task_stack *s)
{
#if STACK_ASAN
    __sanitizer_finish_switch_fiber(NULL, &s->outside_bottom, &s->outside_bytes);
#endif
    for (;;) {
        s->run(s->ctx);
        task_stack_leave(s);
    }
}

/* Builds the frame that the first task_stack_switch loads. Returns its address. */
static void *first_frame(struct task_stack *s)
{
    uint64_t *sp = (uint64_t *)(void *)(s->bottom + STACK_BYTES - 64) - SAVED_WORDS;

    sp[ARGUMENT_WORD] = (uint64_t)(uintptr_t)s;
    sp[ENTRY_WORD] = (uint64_t)(uintptr_t)task_stack_first;
    return sp;
}

void task_stack_enter(struct task_stack *s)
{
#if STACK_TSAN
    s->outside_fiber = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(s->fiber, 0);
#endif
#if STACK_ASAN
    __sanitizer_start_switch_fiber(&s->outside_fake, s->bottom, STACK_BYTES);
#endif
    task_stack_switch(&s->outside_sp, s->sp);
#if STACK_ASAN
    __sanitizer_finish_switch_fiber(s->outside_fake, NULL, NULL);
#endif
}

void task_stack_leave(struct task_stack *s)
{
#if STACK_TSAN
    __tsan_switch_to_fiber(s->outside_fiber, 0);
#endif
#if STACK_ASAN
    __sanitizer_start_switch_fiber(&s->fake, s->outside_bottom, s->outside_bytes);
#endif
    task_stack_switch(&s->sp, s->outside_sp);
#if STACK_ASAN
    __sanitizer_finish_switch_fiber(s->fake, &s->outside_bottom, &s->outside_bytes);
#endif
}

/* --- memory --- */

enum { MAP_FLAGS = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK };

struct task_stack *task_stack_new(void (*run)(void *ctx), void *ctx)
{
    struct task_stack *s = mem_zalloc(sizeof(*s));
    /* cppcheck-suppress invalidFunctionArg ; -1 goes with MAP_ANONYMOUS */
    char *p = mmap(NULL, STACK_BYTES + GUARD_BYTES, PROT_READ | PROT_WRITE, MAP_FLAGS, -1, 0);

    CHECK(p != MAP_FAILED && mprotect(p, GUARD_BYTES, PROT_NONE) == 0);
    (void)madvise(p, STACK_BYTES + GUARD_BYTES, MADV_NOHUGEPAGE);
    s->run = run;
    s->ctx = ctx;
    s->bottom = p + GUARD_BYTES;
    s->sp = first_frame(s);
#if STACK_ASAN
    __lsan_register_root_region(s->bottom, STACK_BYTES);
#endif
#if STACK_TSAN
    s->fiber = __tsan_create_fiber(0);
#endif
    return s;
}

void task_stack_free(struct task_stack *s)
{
#if STACK_ASAN
    __lsan_unregister_root_region(s->bottom, STACK_BYTES);
#endif
#if STACK_TSAN
    __tsan_destroy_fiber(s->fiber);
#endif
    (void)munmap(s->bottom - GUARD_BYTES, STACK_BYTES + GUARD_BYTES);
    free(s);
}

/* --- overflows --- */

#if !STACK_ASAN && !STACK_TSAN
static bool (*describe_running)(struct task_overflow *ret);

static void on_fault(int sig, siginfo_t *info, void *context)
{
    static const char words[] = "a task's stack overflowed, its owner is ";
    const char *at = info->si_addr;
    struct task_overflow o;
    char text[160];
    size_t n = sizeof(words) - 1;

    (void)context;
    if (describe_running(&o) && at < o.stack->bottom && at >= o.stack->bottom - GUARD_BYTES) {
        memcpy(text, words, n);
        o.owner_len = MIN_OF(o.owner_len, sizeof(text) - n - 1);
        memcpy(text + n, o.owner, o.owner_len);
        text[n + o.owner_len] = '\0';
        check_failed(__FILE__, __LINE__, text);
    }
    (void)signal(sig, SIG_DFL); /* the fault is repeated, and ends the process */
}
#endif

void task_stack_watch(bool (*describe)(struct task_overflow *ret))
{
#if !STACK_ASAN && !STACK_TSAN /* the sanitizers have handlers of their own */
    static char stack[64 << 10];
    stack_t alternate = {.ss_sp = stack, .ss_size = sizeof(stack)};
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};

    describe_running = describe;
    if (sigaltstack(&alternate, NULL) == 0)
        (void)sigaction(SIGSEGV, &action, NULL);
#else
    (void)describe;
#endif
}
