#!/bin/sh
# What `make test-kvm` runs on the emulated machine: the test binaries in bin/kvm, each in its package's folder.
export FLASH_REQUIRE=vm,kvm
top=$PWD
status=0
run() {
	package=$1
	shift
	echo "== $package, $(cut -d ' ' -f 1 /proc/uptime) s"
	(cd "$package" && exec "$top/bin/kvm/$(basename "$package").test" -test.timeout 300s "$@") || status=1
}
run memtrack -test.skip 'MoreThanAnArena'
run memtrack/pagemap
run memtrack/uffd
# No guest: command lines, messages, states, memory, processes.
run vmm/qemu -test.run 'EveryFact|Argument|Parse|QMP|Monitor|InEveryWayOfWorking|BootedMemory|ShareOneBase|WrongSize|TestChild|Restriction|KVMIsTried|Older|ControlGroup|Limits'
# Guests.
run vmm/qemu -test.v -test.run 'KVMMachine|KVMRefuses|KVMTracking|WithoutUserfaultfd|LeastItNeeds|PassesItsLimit'
run vmm/host -test.v -test.run 'KVMStory'
echo "== done, $(cut -d ' ' -f 1 /proc/uptime) s, status $status"
exit $status
