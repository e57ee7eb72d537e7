// Package pagemap finds written pages of a machine's memory through /proc/PID/pagemap of the process that runs it.
//
// Two ways, each with a probe that really tries it:
//
//   - Scan, exact, needs Linux 6.7 and memory registered with a userfaultfd for asynchronous write protection (package
//     uffd does that). A write to a protected page clears its protection, in the kernel, without a message; one
//     PAGEMAP_SCAN finds the unprotected pages and protects them again. Absent pages are protected too, by markers in the
//     page table, so that a page only read stays clean; a private mapping needs no markers, because a page that was only
//     read is still the file's. About 0.5 ms for 512 MiB.
//   - SoftDirty, for kernels built with it (x86 before 6.7: Debian's, Ubuntu's). Writing "4" to clear_refs clears bit 55
//     of every entry; a write sets it again. It reports somewhat too much.
//
// Terms: to arm is to protect all pages, so that the next write to each is seen. A marker is a page table entry that
// holds no page, only the protection.
//
// struct pm_scan_arg, 96 bytes, native byte order; ioctl PAGEMAP_SCAN = _IOWR('f', 16, 96) = 0xc0606610
//
//	 0 u64 size = 96            32 u64 walk_end (out)     64 u64 category_inverted
//	 8 u64 flags                40 u64 vec                72 u64 category_mask
//	16 u64 start                48 u64 vec_len            80 u64 category_anyof_mask
//	24 u64 end                  56 u64 max_pages          88 u64 return_mask
//
// struct page_region, 24 bytes: u64 start, u64 end, u64 categories.
//
// Entry of /proc/PID/pagemap, u64: bit 63 present, 62 swapped (or a marker), 61 file page or shared, 55 soft-dirty.
//
// What is easy to get wrong
//
//   - Without PM_SCAN_CHECK_WPASYNC the scan skips memory that isn't registered, and reports nothing (I7).
//   - A page counts as written when it has no protection, so whatever was there before arming counts as written.
//   - "Not present" is never "not written": swapped pages count, and pages of shared memory that reclaim took out of the
//     page table are found in the file behind it.
//
// Lock order: Tracker.mu → Ledger.
package pagemap
