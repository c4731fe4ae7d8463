/* Stacks of tasks and the switch between them (task_stack.h). Memory is touched page by page, so a
 * stack that is never deep costs two pages. */
#include "common/os/task_stack.h"

#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/attrs.h"
#include "common/base/check.h"
#include "common/base/mem.h"

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
    char *bottom;          /* lowest byte above the guard */
    void *sp, *outside_sp; /* of the side that does not run */
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

/* Saves the registers that a callee must keep on this stack, its pointer in *from, and continues on
 * the stack `to`. */
void task_stack_switch(void **from, void *to);
void task_stack_first(void);

#if defined(__x86_64__)
__asm__(".text\n"
        ".globl task_stack_switch\n"
        ".type task_stack_switch, @function\n"
        "task_stack_switch:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size task_stack_switch, .-task_stack_switch\n"
        /* The first frame: r12 is the argument. No return address ends backtraces. */
        ".globl task_stack_first\n"
        ".type task_stack_first, @function\n"
        "task_stack_first:\n"
        "    movq %r12, %rdi\n"
        "    pushq $0\n"
        "    jmp task_stack_begin\n"
        ".size task_stack_first, .-task_stack_first\n");

/* An odd number, so that the stack is aligned as after a call. */
enum { SAVED_WORDS = 7, ARGUMENT_WORD = 3, ENTRY_WORD = 6 };
#elif defined(__aarch64__)
__asm__(".text\n"
        ".globl task_stack_switch\n"
        ".type task_stack_switch, %function\n"
        "task_stack_switch:\n"
        "    sub sp, sp, #160\n"
        "    stp x19, x20, [sp, #0]\n"
        "    stp x21, x22, [sp, #16]\n"
        "    stp x23, x24, [sp, #32]\n"
        "    stp x25, x26, [sp, #48]\n"
        "    stp x27, x28, [sp, #64]\n"
        "    stp x29, x30, [sp, #80]\n"
        "    stp d8, d9, [sp, #96]\n"
        "    stp d10, d11, [sp, #112]\n"
        "    stp d12, d13, [sp, #128]\n"
        "    stp d14, d15, [sp, #144]\n"
        "    mov x9, sp\n"
        "    str x9, [x0]\n"
        "    mov sp, x1\n"
        "    ldp x19, x20, [sp, #0]\n"
        "    ldp x21, x22, [sp, #16]\n"
        "    ldp x23, x24, [sp, #32]\n"
        "    ldp x25, x26, [sp, #48]\n"
        "    ldp x27, x28, [sp, #64]\n"
        "    ldp x29, x30, [sp, #80]\n"
        "    ldp d8, d9, [sp, #96]\n"
        "    ldp d10, d11, [sp, #112]\n"
        "    ldp d12, d13, [sp, #128]\n"
        "    ldp d14, d15, [sp, #144]\n"
        "    add sp, sp, #160\n"
        "    ret\n"
        ".size task_stack_switch, .-task_stack_switch\n"
        /* The first frame: x19 is the argument. No return address ends backtraces. */
        ".globl task_stack_first\n"
        ".type task_stack_first, %function\n"
        "task_stack_first:\n"
        "    mov x0, x19\n"
        "    mov x30, #0\n"
        "    b task_stack_begin\n"
        ".size task_stack_first, .-task_stack_first\n");

enum { SAVED_WORDS = 20, ARGUMENT_WORD = 0, ENTRY_WORD = 11 };
#else
#error "tasks: the switch of stacks is written for x86-64 and aarch64"
#endif

void task_stack_begin(struct task_stack *s);

/* Runs one function after the other: `run` reads from ctx which one. */
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

/* What task_stack_switch loads at the first switch. */
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

struct task_stack *task_stack_new(void (*run)(void *ctx), void *ctx)
{
    struct task_stack *s = mem_zalloc(sizeof(*s));
    char *p = mmap(NULL, STACK_BYTES + GUARD_BYTES, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);

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
