package main

/*
#include <sys/prctl.h>

// What every thread inherits must be set before Go starts the first. Go's monitor thread sleeps 20 us at a time while
// anything runs: with the kernel's slack of 50 us, its naps beside the calls of a poll take more time than the scrapes. The
// unit is nanoseconds; see prctl(2).
static void __attribute__((constructor)) set_timer_slack(void) { prctl(PR_SET_TIMERSLACK, 500000UL, 0UL, 0UL, 0UL); }
*/
import "C"
