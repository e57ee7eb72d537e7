// Package pagemap finds written pages through /proc/PID/pagemap.
package pagemap
