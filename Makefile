# spdld: one Makefile for everything. `make help` lists the targets.
#   CC=gcc|clang      compiler (gcc)
#   SAN=address,undefined | thread     sanitizers; the result goes to a folder of its own
#   FAILPOINTS=1      with named points to die at, for tests (shm/shm_failpoint.h); the result goes to a folder of its own
#   BUILD=folder      where it all goes (build)
#   V=1               shows whole commands
SHELL := /bin/sh
.DELETE_ON_ERROR:
.SUFFIXES:

VERSION := 0.1.0
V ?= 0
Q := $(if $(filter 1,$(V)),,@)
say = $(if $(filter 1,$(V))$(findstring s,$(firstword -$(MAKEFLAGS))),,@echo '  $(1)  $(patsubst $(CURDIR)/%,%,$@)')
ifeq ($(origin CC),default)
CC := gcc
endif
comma := ,
SAN ?=
FAILPOINTS ?=
ifneq ($(FAILPOINTS),)
BUILD ?= build/failpoints
CPPFLAGS += -DSPDL_FAILPOINTS
else ifeq ($(SAN),)
BUILD ?= build
else
BUILD ?= build/san-$(firstword $(subst $(comma), ,$(SAN)))
endif
# One name for each file, however the folder was given: dependency files name their targets.
override BUILD := $(patsubst $(CURDIR)/%,%,$(BUILD))
OBJ := $(BUILD)/obj
GEN := $(BUILD)/gen

WARN := -Wall -Wextra -Wpedantic -Werror -Wshadow -Wconversion -Wsign-conversion -Wstrict-prototypes -Wmissing-prototypes \
	-Wpointer-arith -Wcast-qual -Wcast-align -Wwrite-strings -Wformat=2 -Wundef -Wvla -Walloca -Wdouble-promotion \
	-Wimplicit-fallthrough -Wswitch-enum -Wnull-dereference
ifneq ($(findstring clang,$(CC)),)
WARN += -Wthread-safety
endif
CPPFLAGS += -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -DSPDL_VERSION='"$(VERSION)"' -I. -Idaemon -Iclient/include -Iclient -I$(GEN)
CFLAGS += -std=c17 -O2 -g -fno-omit-frame-pointer -ffp-contract=off -fno-common -fvisibility=hidden -fPIC -pthread
LDFLAGS += -pthread -Wl,-z,relro,-z,now
ifeq ($(SAN),)
CFLAGS += -fstack-protector-strong -D_FORTIFY_SOURCE=2
MALLOC := -ljemalloc
else
CFLAGS += -fsanitize=$(SAN) -fno-sanitize-recover=all
LDFLAGS += -fsanitize=$(SAN)
MALLOC :=
endif

# Rooms of each program. What may include what is in scripts/lint.
HOST_ROOMS := base item config plan source fetch sink pipeline control service
WORK_ROOMS := base item decode transform worker
room_sources = $(foreach r,$(1),$(wildcard daemon/$(r)/*.c))
objects = $(patsubst %.c,$(OBJ)/%.o,$(1))

SHM_OBJ := $(call objects,$(wildcard shm/*.c))
PROTO_OBJ := $(call objects,$(wildcard proto/*.c)) $(OBJ)/gen/proto/spdl_control.pb-c.o
HOST_OBJ := $(call objects,$(call room_sources,$(HOST_ROOMS)))
WORK_OBJ := $(call objects,$(call room_sources,$(WORK_ROOMS)))
BOTH_OBJ := $(sort $(HOST_OBJ) $(WORK_OBJ))
CLIENT_OBJ := $(call objects,$(wildcard client/*.c)) $(SHM_OBJ) $(PROTO_OBJ)
CTL_OBJ := $(call objects,$(wildcard client/ctl/*.c))

HOST_LIBS := -luring -lprotobuf-c -lyaml -lxxhash -lsystemd
WORK_LIBS := -ljpeg -lpng -lwebp -lwebpdemux
CLIENT_LIBS := -lprotobuf-c
CTL_LIBS := -lpng -lxxhash

PROGRAMS := $(BUILD)/spdld $(BUILD)/spdld-worker $(BUILD)/spdld-inproc $(BUILD)/spdlctl
LIBRARIES := $(BUILD)/libspdl-client.so $(BUILD)/libspdl-client.a
EXAMPLES := $(patsubst client/examples/%.c,$(BUILD)/examples/%,$(wildcard client/examples/*.c)) \
	$(patsubst client/examples/%.cc,$(BUILD)/examples/%,$(wildcard client/examples/*.cc))

.PHONY: all
all: $(PROGRAMS) $(LIBRARIES) $(EXAMPLES) $(BUILD)/hostile
.PHONY: programs
programs: $(PROGRAMS) $(BUILD)/hostile

$(BUILD)/spdld: $(OBJ)/daemon/main.o $(OBJ)/daemon/main_daemon.o $(OBJ)/daemon/main_roots.o $(HOST_OBJ) $(SHM_OBJ) $(PROTO_OBJ)
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(HOST_LIBS) $(MALLOC)
$(BUILD)/spdld-worker: $(OBJ)/daemon/main_worker.o $(WORK_OBJ) $(SHM_OBJ)
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(WORK_LIBS) $(MALLOC)
$(BUILD)/spdld-inproc: $(OBJ)/daemon/main_inproc.o $(OBJ)/daemon/main_daemon.o $(OBJ)/daemon/main_roots.o $(BOTH_OBJ) $(SHM_OBJ) $(PROTO_OBJ)
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(HOST_LIBS) $(WORK_LIBS) $(MALLOC)
$(BUILD)/spdlctl: $(CTL_OBJ) $(BUILD)/libspdl-client.a
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(CTL_LIBS) $(CLIENT_LIBS)
$(BUILD)/libspdl-client.a: $(CLIENT_OBJ)
	$(call say,AR  )
	$(Q)rm -f $@ && ar rcs $@ $^
$(BUILD)/libspdl-client.so.0: $(CLIENT_OBJ) client/libspdl-client.map
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -shared -Wl,-soname,libspdl-client.so.0 -Wl,--version-script=client/libspdl-client.map -o $@ $(CLIENT_OBJ) $(CLIENT_LIBS)
$(BUILD)/libspdl-client.so: $(BUILD)/libspdl-client.so.0
	$(call say,LINK)
	$(Q)ln -sf libspdl-client.so.0 $@
$(BUILD)/examples/%: client/examples/%.c $(BUILD)/libspdl-client.a
	@mkdir -p $(@D)
	$(call say,CC  )
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(WARN) $(LDFLAGS) -o $@ $^ $(CLIENT_LIBS)
$(BUILD)/examples/%: client/examples/%.cc $(BUILD)/libspdl-client.a
	@mkdir -p $(@D)
	$(call say,CXX )
	$(Q)$(CXX) $(CPPFLAGS) -std=c++17 -O2 -g -Wall -Wextra -Werror $(if $(SAN),-fsanitize=$(SAN)) -pthread $(LDFLAGS) -o $@ $^ $(CLIENT_LIBS)

# What must be there before anything is compiled; a missing one is named with its Debian package.
$(BUILD)/have-deps: scripts/install-deps Makefile
	@command -v $(firstword $(CC)) >/dev/null || \
		{ echo "make: the compiler $(firstword $(CC)) is missing: scripts/install-deps installs all that is needed" >&2; exit 1; }
	@mkdir -p $(@D); lacking=; \
	for need in liburing.h:liburing-dev protobuf-c/protobuf-c.h:libprotobuf-c-dev yaml.h:libyaml-dev \
		xxhash.h:libxxhash-dev jpeglib.h:libjpeg62-turbo-dev png.h:libpng-dev webp/demux.h:libwebp-dev jemalloc/jemalloc.h:libjemalloc-dev systemd/sd-daemon.h:libsystemd-dev; do \
		printf '#include <stdio.h>\n#include <%s>\n' "$${need%%:*}" | $(CC) $(CPPFLAGS) -E -x c - >/dev/null 2>&1 || \
			{ echo "make: <$${need%%:*}> is missing: Debian package $${need##*:}" >&2; lacking="$$lacking $${need##*:}"; }; done; \
	command -v protoc-c >/dev/null || \
		{ echo "make: the program protoc-c is missing: Debian package protobuf-c-compiler" >&2; lacking="$$lacking protobuf-c-compiler"; }; \
	[ -z "$$lacking" ] || { echo "make: scripts/install-deps installs all that is needed, or: apt-get install$$lacking" >&2; exit 1; }
	@touch $@

$(GEN)/proto/spdl_control.pb-c.c: proto/spdl_control.proto | $(BUILD)/have-deps
	@mkdir -p $(@D)
	$(call say,GEN )
	$(Q)protoc-c --c_out=$(GEN) $<
$(GEN)/proto/spdl_control.pb-c.h: $(GEN)/proto/spdl_control.pb-c.c ;
$(OBJ)/gen/%.o: $(GEN)/%.c
	@mkdir -p $(@D)
	$(call say,CC  )
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -Wall -Werror -MMD -MP -c -o $@ $<
$(OBJ)/%.o: %.c | $(GEN)/proto/spdl_control.pb-c.h
	@mkdir -p $(@D)
	$(call say,CC  )
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(WARN) -MMD -MP -c -o $@ $<

# Tests: tests/unit/ROOM/test_*.c and tests/pipeline/test_*.c link every room (not the mains) and cmocka.
UNIT_SOURCES := $(wildcard tests/unit/*/test_*.c tests/pipeline/test_*.c)
UNIT_TESTS := $(patsubst tests/%.c,$(BUILD)/tests/%,$(UNIT_SOURCES))
TEST_LIB_OBJ := $(call objects,$(wildcard tests/lib/*.c))
$(BUILD)/tests/%: $(OBJ)/tests/%.o $(TEST_LIB_OBJ) $(BOTH_OBJ) $(sort $(CLIENT_OBJ))
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ -lcmocka $(HOST_LIBS) $(WORK_LIBS) $(MALLOC)
# The simulator runs the conductor's core with defects planted in it, which it switches on one by one.
DEFECT_OBJ := $(patsubst daemon/%.c,$(OBJ)/tests/planted/%.o,$(wildcard daemon/pipeline/pipeline_core*.c))
SIM_OBJ := $(DEFECT_OBJ) $(call objects,$(wildcard tests/pipeline/sim_*.c) daemon/pipeline/pipeline_arena.c \
	$(call room_sources,base item plan)) $(SHM_OBJ)
$(OBJ)/tests/planted/%.o: daemon/%.c | $(BUILD)/have-deps
	@mkdir -p $(@D)
	$(call say,CC  )
	$(Q)$(CC) $(CPPFLAGS) -DPIPELINE_CORE_DEFECTS $(CFLAGS) $(WARN) -MMD -MP -c -o $@ $<
$(BUILD)/tests/pipeline/test_core_sim: $(OBJ)/tests/pipeline/test_core_sim.o $(SIM_OBJ)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ -lcmocka -lxxhash $(MALLOC)
# Those of spdlctl link its own parts instead of the daemon's rooms.
$(BUILD)/tests/unit/ctl/%: $(OBJ)/tests/unit/ctl/%.o $(filter-out %/ctl_main.o,$(CTL_OBJ)) $(CLIENT_OBJ)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ -lcmocka $(CTL_LIBS) $(CLIENT_LIBS)
.PRECIOUS: $(OBJ)/%.o
.PHONY: unit-tests pure-tests
unit-tests: $(UNIT_TESTS)
# The pure core and the rings: what runs under the thread sanitizer in every check.
PURE_TESTS := $(filter $(BUILD)/tests/pipeline/% $(BUILD)/tests/unit/worker/% $(BUILD)/tests/unit/shm/%,$(UNIT_TESTS))
pure-tests: $(PURE_TESTS)

# A hostile rank, for the tests of what it must not be able to do; not installed.
$(BUILD)/hostile: $(call objects,$(wildcard tests/hostile/*.c))
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^

# Fuzzed parsers: tests/fuzz/fuzz_*.c with libFuzzer, ASan and UBSan, by clang and in a folder of their own.
FUZZ_TARGETS := $(patsubst tests/fuzz/fuzz_%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZ_OBJ := $(call objects,$(call room_sources,base item config plan source decode) daemon/pipeline/pipeline_kept.c \
	daemon/pipeline/pipeline_seen.c daemon/pipeline/pipeline_quarantine.c daemon/pipeline/pipeline_quarantine_pack.c) $(SHM_OBJ) $(PROTO_OBJ)
FUZZ_SEED_OBJ := $(OBJ)/tests/fuzz/seeds.o $(OBJ)/tests/fuzz/seeds_tar.o $(call objects,tests/lib/picture_maker.c tests/lib/jpeg_maker.c tests/lib/tar_maker.c)
$(BUILD)/fuzz_seeds: $(FUZZ_SEED_OBJ) $(FUZZ_OBJ)
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(HOST_LIBS) $(WORK_LIBS)
$(BUILD)/fuzz_%: $(OBJ)/tests/fuzz/fuzz_%.o $(FUZZ_OBJ)
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -fsanitize=fuzzer -o $@ $^ $(HOST_LIBS) $(WORK_LIBS)
.PHONY: fuzz fuzz-programs
fuzz-programs: $(BUILD)/fuzz_seeds $(addprefix $(BUILD)/fuzz_,$(FUZZ_TARGETS))
fuzz:
	$(Q)$(MAKE) --no-print-directory BUILD=$(BUILD)/fuzz CC=clang SAN=fuzzer-no-link,address,undefined fuzz-programs
	$(Q)$(BUILD)/fuzz/fuzz_seeds $(BUILD)/fuzz/seeds

# The bare loop that the benchmarks and the demo compare with; the kind of CPU decides what it may use.
$(BUILD)/bare_decode: tests/bench/bare_decode.c | $(BUILD)/have-deps
	$(call say,CC  )
	$(Q)$(CC) -O3 -march=native $< -o $@ -ljpeg -lm -lpthread
.PHONY: bare-decode
bare-decode: $(BUILD)/bare_decode

.PHONY: demo check check-slow bench lint format
demo: all
	@/usr/bin/python3 tests/demo/demo.py --build $(BUILD)
check:
	@/usr/bin/python3 scripts/run-tests --build $(BUILD) check
check-slow:
	@/usr/bin/python3 scripts/run-tests --build $(BUILD) check-slow
bench: all
	@/usr/bin/python3 tests/bench/bench.py --build $(BUILD)
lint: all unit-tests
	@/usr/bin/python3 scripts/lint --build $(BUILD)
format:
	git ls-files -z -- '*.c' '*.h' '*.cc' ':!tests/bench/bare_decode.c' | xargs -0 clang-format -i

# Installation. Into /usr or /usr/local it has its settings in /etc/spdld, where the daemon looks for them; elsewhere nothing outside of
# PREFIX is touched, and the daemon is told of them (-c). systemd looks into /usr/lib and /usr/local/lib.
PREFIX ?= /usr/local
DESTDIR ?=
LIBDIR ?= $(PREFIX)/lib
SYSCONFDIR ?= $(if $(filter /usr /usr/local,$(PREFIX)),/etc,$(PREFIX)/etc)
DEST := $(DESTDIR)$(PREFIX)
UNITS := $(DEST)/lib/systemd
SHARE := $(BUILD)/share
$(SHARE)/stamp: $(BUILD)/spdld $(BUILD)/spdlctl scripts/make-docs client/include/spdl/client.h
	$(call say,GEN )
	$(Q)/usr/bin/python3 scripts/make-docs $(BUILD) $(SHARE) $(VERSION)
	@touch $@
.PHONY: docs install install-programs install-library install-development install-units install-docs
docs: $(SHARE)/stamp
install: install-programs install-library install-development install-units install-docs
install-programs: $(PROGRAMS)
	install -d $(DEST)/bin $(DEST)/libexec/spdld $(DESTDIR)$(SYSCONFDIR)/spdld/datasets.d
	install -m 755 $(BUILD)/spdld $(BUILD)/spdlctl $(DEST)/bin
	install -m 755 $(BUILD)/spdld-worker $(DEST)/libexec/spdld
	[ -e $(DESTDIR)$(SYSCONFDIR)/spdld/spdld.yaml ] || install -m 644 configs/spdld.yaml $(DESTDIR)$(SYSCONFDIR)/spdld
install-library: $(LIBRARIES)
	install -d $(DESTDIR)$(LIBDIR)
	install -m 644 $(BUILD)/libspdl-client.so.0 $(DESTDIR)$(LIBDIR)/libspdl-client.so.0
install-development: $(LIBRARIES) docs
	install -d $(DESTDIR)$(LIBDIR)/pkgconfig $(DEST)/include/spdl $(DEST)/share/man/man3
	install -m 644 $(BUILD)/libspdl-client.a $(DESTDIR)$(LIBDIR)
	ln -sf libspdl-client.so.0 $(DESTDIR)$(LIBDIR)/libspdl-client.so
	install -m 644 client/include/spdl/*.h $(DEST)/include/spdl
	install -m 644 $(SHARE)/man/spdl_client.3 $(DEST)/share/man/man3
	printf '%s\n' 'prefix=$(PREFIX)' 'libdir=$(LIBDIR)' 'includedir=$${prefix}/include' '' 'Name: spdl-client' \
		'Description: batches of a running spdld, in place' 'Version: $(VERSION)' 'Requires.private: libprotobuf-c' \
		'Libs: -L$${libdir} -lspdl-client' 'Libs.private: -pthread' 'Cflags: -I$${includedir}' >$(DESTDIR)$(LIBDIR)/pkgconfig/spdl-client.pc
# The units name the programs where they were installed.
install-units:
	install -d $(UNITS)/system $(UNITS)/user $(DEST)/lib/sysusers.d $(DEST)/lib/tmpfiles.d $(DEST)/share/spdld
	sed 's,/usr/bin/,$(PREFIX)/bin/,' configs/systemd/spdld.service >$(UNITS)/system/spdld.service
	sed 's,/usr/bin/,$(PREFIX)/bin/,' configs/systemd/user/spdld.service >$(UNITS)/user/spdld.service
	install -m 644 configs/systemd/spdld.socket $(UNITS)/system/spdld.socket
	install -m 644 configs/systemd/spdld.sysusers $(DEST)/lib/sysusers.d/spdld.conf
	install -d $(UNITS)/catalog
	install -m 644 configs/systemd/spdld.catalog $(UNITS)/catalog/spdld.catalog
	install -m 644 configs/systemd/spdld.tmpfiles $(DEST)/lib/tmpfiles.d/spdld.conf
	install -m 644 configs/systemd/spdld.service.d/gpu.conf $(DEST)/share/spdld/gpu.conf
	chmod 644 $(UNITS)/system/spdld.service $(UNITS)/user/spdld.service
install-docs: docs
	install -d $(DEST)/share/man/man1 $(DEST)/share/man/man5 $(DEST)/share/man/man8 $(DEST)/share/bash-completion/completions \
		$(DEST)/share/zsh/vendor-completions $(DEST)/share/fish/vendor_completions.d
	install -m 644 $(SHARE)/man/spdlctl.1 $(DEST)/share/man/man1
	install -m 644 $(SHARE)/man/spdld.yaml.5 $(DEST)/share/man/man5
	install -m 644 $(SHARE)/man/spdld.8 $(DEST)/share/man/man8
	install -m 644 $(SHARE)/completions/spdlctl $(DEST)/share/bash-completion/completions
	install -m 644 $(SHARE)/completions/_spdlctl $(DEST)/share/zsh/vendor-completions
	install -m 644 $(SHARE)/completions/spdlctl.fish $(DEST)/share/fish/vendor_completions.d
.PHONY: deb
deb: all docs
	@scripts/make-deb $(BUILD) $(VERSION)$(DEB_REVISION)

.PHONY: clean help
clean:
	rm -rf build
help:
	@sed -n 's/^#   /  /p' Makefile; sed -n 's/^\.PHONY: /  make /p' Makefile

-include $(shell find $(OBJ) -name '*.d' 2>/dev/null)
