/* trace LOG ROOT MOST COMMAND..: runs a command, and logs what its calls do to names and synced bytes below a folder.
 *
 * A line for each call that succeeded, tab separated. One call is made at a time, so that their order is known:
 *   make PATH ID      a file was opened that may be new
 *   folder PATH
 *   rename FROM TO
 *   link FROM TO
 *   remove PATH
 *   sync PATH ID FILE a file's bytes were synced: FILE beside the log is a copy of them
 *   settle PATH       a folder was synced
 * After MOST lines the command is killed (0: never). Paths must not hold tabs or line feeds.
 *
 * Calls are seen by ptrace, stopped by a seccomp filter: not every rename of a Rust program goes through libc, where a
 * library that is loaded before it would see them. Linux 5.3. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATH_BYTES 8192
#define THREADS 4096

static FILE *log_file;
static char root[PATH_BYTES], log_path[PATH_BYTES];
static long lines, most;

static void fail(const char *what) {
  perror(what);
  exit(125);
}

static const int calls[] = {
#ifdef SYS_open
  SYS_open, SYS_rename, SYS_link, SYS_unlink, SYS_rmdir, SYS_mkdir, SYS_creat, SYS_symlink,
#endif
#ifdef SYS_renameat
  SYS_renameat,
#endif
  SYS_openat, SYS_renameat2, SYS_linkat, SYS_unlinkat, SYS_mkdirat, SYS_symlinkat, SYS_fsync, SYS_fdatasync};
enum { CALLS = sizeof calls / sizeof *calls };

/* Stops at these calls; the log of all others would cost time and tell nothing. */
static void filter(void) {
  struct sock_filter code[CALLS + 3];
  code[0] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
  for (int i = 0; i < CALLS; i++)
    code[i + 1] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)calls[i], CALLS - i, 0);
  code[CALLS + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  code[CALLS + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE);
  struct sock_fprog program = {CALLS + 3, code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) fail("no_new_privs");
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) fail("seccomp");
}

static struct thread {
  pid_t id;
  struct __ptrace_syscall_info call;
  char from[PATH_BYTES], to[PATH_BYTES];
} *threads[THREADS];

static struct thread *thread_of(pid_t id) {
  for (int i = 0; i < THREADS; i++) {
    if (!threads[i]) {
      threads[i] = calloc(1, sizeof **threads);
      threads[i]->id = id;
    }
    if (threads[i]->id == id) return threads[i];
  }
  fail("too many threads");
  return NULL;
}

/* Reads a path of the command, made absolute. */
static void path_of(pid_t id, int folder, uint64_t address, char *out) {
  char name[PATH_BYTES] = "", link[64];
  for (size_t at = 0; at < sizeof name - 256; at += 256) {
    struct iovec here = {name + at, 256}, there = {(void *)(uintptr_t)(address + at), 256};
    /* A string may end before a page that is not there. */
    ssize_t got = process_vm_readv(id, &here, 1, &there, 1, 0);
    for (size_t one = 0; got < 0 && one < 256; one++) {
      struct iovec h = {name + at + one, 1}, t = {(void *)(uintptr_t)(address + at + one), 1};
      if (process_vm_readv(id, &h, 1, &t, 1, 0) < 1 || !name[at + one]) break;
    }
    if (memchr(name + at, 0, 256)) break;
  }
  if (name[0] == '/') {
    strcpy(out, name);
    return;
  }
  if (folder == AT_FDCWD)
    snprintf(link, sizeof link, "/proc/%d/cwd", id);
  else
    snprintf(link, sizeof link, "/proc/%d/fd/%d", id, folder);
  ssize_t length = readlink(link, out, PATH_BYTES - 1);
  out[length < 0 ? 0 : length] = 0;
  size_t used = strlen(out);
  snprintf(out + used, PATH_BYTES - used, "/%s", name);
}

static int is_below(const char *path) {
  size_t length = strlen(root);
  return !strncmp(path, root, length) && (!path[length] || path[length] == '/');
}

/* Numbers of files are given again: with the time of its birth each is another. */
static void id_of(const char *path, char *out, mode_t *mode) {
  struct statx about = {0};
  statx(AT_FDCWD, path, 0, STATX_BASIC_STATS | STATX_BTIME, &about);
  *mode = about.stx_mode;
  snprintf(out, 96, "%llu-%lld-%u", (unsigned long long)about.stx_ino, (long long)about.stx_btime.tv_sec,
           about.stx_btime.tv_nsec);
}

static void copy(const char *from, const char *to) {
  char buffer[1 << 16];
  int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (in < 0 || out < 0) fail("copy");
  for (ssize_t got; (got = read(in, buffer, sizeof buffer)) > 0;)
    if (write(out, buffer, got) != got) fail("copy");
  close(in);
  close(out);
}

/* Reads the paths before the call changes them. */
static void entry(struct thread *t) {
  uint64_t nr = t->call.seccomp.nr, *a = (uint64_t *)t->call.seccomp.args;
  t->from[0] = t->to[0] = 0;
  switch (nr) {
#ifdef SYS_open
  case SYS_open: case SYS_creat: case SYS_unlink: case SYS_rmdir: case SYS_mkdir:
    path_of(t->id, AT_FDCWD, a[0], t->from);
    break;
  case SYS_rename: case SYS_link:
    path_of(t->id, AT_FDCWD, a[0], t->from);
    path_of(t->id, AT_FDCWD, a[1], t->to);
    break;
#endif
#ifdef SYS_renameat
  case SYS_renameat:
#endif
  case SYS_renameat2: case SYS_linkat:
    path_of(t->id, (int)a[0], a[1], t->from);
    path_of(t->id, (int)a[2], a[3], t->to);
    break;
  case SYS_openat: case SYS_unlinkat: case SYS_mkdirat:
    path_of(t->id, (int)a[0], a[1], t->from);
    break;
  }
}

static void done(struct thread *t, int64_t result) {
  uint64_t nr = t->call.seccomp.nr, *a = (uint64_t *)t->call.seccomp.args;
  char link[64], path[PATH_BYTES], id[96], file[PATH_BYTES + 32];
  mode_t mode;
  const char *pair = NULL;
  switch (nr) {
#ifdef SYS_open
  case SYS_open: case SYS_creat:
    if (nr == SYS_open && !(a[1] & O_CREAT)) return;
    goto made;
#endif
  case SYS_openat:
    if (!(a[2] & O_CREAT)) return;
#ifdef SYS_open
  made:
#endif
    if (!is_below(t->from)) return;
    snprintf(link, sizeof link, "/proc/%d/fd/%d", t->id, (int)result);
    id_of(link, id, &mode);
    fprintf(log_file, "make\t%s\t%s\n", t->from, id);
    break;
#ifdef SYS_open
  case SYS_rename: pair = "rename"; break;
  case SYS_link: pair = "link"; break;
  case SYS_unlink: case SYS_rmdir:
#endif
  case SYS_unlinkat:
    if (!is_below(t->from)) return;
    fprintf(log_file, "remove\t%s\n", t->from);
    break;
#ifdef SYS_open
  case SYS_mkdir:
#endif
  case SYS_mkdirat:
    if (!is_below(t->from)) return;
    fprintf(log_file, "folder\t%s\n", t->from);
    break;
#ifdef SYS_renameat
  case SYS_renameat:
#endif
  case SYS_renameat2: pair = "rename"; break;
  case SYS_linkat: pair = "link"; break;
  case SYS_fsync: case SYS_fdatasync: {
    snprintf(link, sizeof link, "/proc/%d/fd/%d", t->id, (int)a[0]);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return;
    path[length] = 0;
    if (!is_below(path)) return;
    id_of(link, id, &mode);
    if (S_ISDIR(mode)) {
      fprintf(log_file, "settle\t%s\n", path);
      break;
    }
    snprintf(file, sizeof file, "%s.%ld", log_path, lines);
    copy(link, file);
    fprintf(log_file, "sync\t%s\t%s\t%s\n", path, id, file);
    break;
  }
  default:
    return;
  }
  if (pair) {
    if (!is_below(t->from) && !is_below(t->to)) return;
    fprintf(log_file, "%s\t%s\t%s\n", pair, t->from, t->to);
  }
  lines++;
}

/* The thread whose call is made, and those that wait for it. */
static pid_t running, waiting[THREADS];
static int waits;

static void start(pid_t id) {
  struct thread *t = thread_of(id);
  running = id;
  ptrace(PTRACE_GET_SYSCALL_INFO, id, sizeof t->call, &t->call);
  entry(t);
  /* It was killed meanwhile: its end is reported. */
  if (ptrace(PTRACE_SYSCALL, id, 0, 0)) running = 0;
}

static void next(void) {
  running = 0;
  while (waits && !running) {
    pid_t id = waiting[0];
    memmove(waiting, waiting + 1, --waits * sizeof *waiting);
    start(id);
  }
}

int main(int count, char **words) {
  if (count < 5) {
    fputs("usage: trace LOG ROOT MOST COMMAND..\n", stderr);
    return 125;
  }
  strcpy(log_path, words[1]);
  if (!realpath(words[2], root)) fail(words[2]);
  most = atol(words[3]);
  log_file = fopen(log_path, "w");
  if (!log_file) fail(log_path);
  pid_t child = fork();
  if (!child) {
    ptrace(PTRACE_TRACEME, 0, 0, 0);
    raise(SIGSTOP);
    filter();
    execvp(words[4], words + 4);
    fail(words[4]);
  }
  int status;
  if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) fail("wait");
  long options = PTRACE_O_TRACESECCOMP | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
                 PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL;
  if (ptrace(PTRACE_SETOPTIONS, child, 0, options)) fail("ptrace");
  ptrace(PTRACE_CONT, child, 0, 0);
  int code = 125;
  for (;;) {
    pid_t id = waitpid(-1, &status, __WALL);
    if (id < 0) break;
    if (WIFEXITED(status) || WIFSIGNALED(status)) {
      if (id == child) code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      if (id == running) next();
      continue;
    }
    int stop = WSTOPSIG(status), event = status >> 16;
    if (event == PTRACE_EVENT_SECCOMP) {
      if (!running)
        start(id);
      else if (waits < THREADS)
        waiting[waits++] = id;
      else
        fail("too many threads");
    } else if (stop == (SIGTRAP | 0x80)) {
      struct __ptrace_syscall_info info;
      ptrace(PTRACE_GET_SYSCALL_INFO, id, sizeof info, &info);
      if (info.op == PTRACE_SYSCALL_INFO_EXIT && info.exit.rval >= 0) {
        done(thread_of(id), info.exit.rval);
        if (most && lines >= most) {
          fflush(log_file);
          kill(child, SIGKILL);
        }
      }
      ptrace(PTRACE_CONT, id, 0, 0);
      if (id == running) next();
    } else if (event || stop == SIGSTOP || stop == SIGTRAP) {
      ptrace(PTRACE_CONT, id, 0, 0);
    } else {
      ptrace(PTRACE_CONT, id, 0, stop);
    }
  }
  fclose(log_file);
  return code;
}
