// Package uffd brings absent pages into a machine's memory through userfaultfd.
package uffd
