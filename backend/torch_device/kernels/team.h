// Threads that share out loops and meet at their ends.
//
// OpenMP starts them; its own barriers spin for milliseconds, which is long where another process holds a core: the one
// that is waited for cannot come back while the waiting one burns the other. Here a thread spins for some 20 us, then sleeps.
#pragma once
#include <omp.h>

#include <atomic>
#include <cstdint>

class Team {
  public:
    int threads = 1;

    // Every thread of the team calls it; each number below `count` is taken by one of them, and all return together.
    template <class Body> void share(int64_t count, Body&& body) {
        for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) body(i);
        meet();
    }

    // Runs `act(thread)` on `wanted` threads, or as many as there are.
    template <class Act> static void run(int wanted, Act&& act) {
        Team team;
#pragma omp parallel num_threads(wanted)
        {
#pragma omp single
            team.threads = omp_get_num_threads();
            act(team, omp_get_thread_num());
        }
    }

  private:
    static constexpr int kSpins = 1000;
    alignas(64) std::atomic<int64_t> next{0};
    alignas(64) std::atomic<int> arrived{0};
    alignas(64) std::atomic<uint32_t> round{0};

    void meet() {
        const uint32_t now = round.load(std::memory_order_acquire);
        if (arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == threads) {
            arrived.store(0, std::memory_order_relaxed);
            next.store(0, std::memory_order_relaxed);
            round.store(now + 1, std::memory_order_release);
            round.notify_all();
            return;
        }
        for (int i = 0; i < kSpins; i++) {
            if (round.load(std::memory_order_acquire) != now) return;
#if defined(__x86_64__)
            __builtin_ia32_pause();
#endif
        }
        round.wait(now, std::memory_order_acquire);
    }
};
