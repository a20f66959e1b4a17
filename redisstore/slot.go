package redisstore

import "strings"

// slots is how many a cluster has.
const slots = 16384

// tagOf returns the part of a key that its slot goes by: what stands between the
// first { and the next }, or all of it if that is empty.
func tagOf(key string) string {
	if from := strings.IndexByte(key, '{'); from >= 0 {
		if n := strings.IndexByte(key[from+1:], '}'); n > 0 {
			return key[from+1 : from+1+n]
		}
	}
	return key
}

// slotOf returns the slot of a key: CRC16 (XMODEM) of its tag.
func slotOf(key string) uint16 {
	key = tagOf(key)
	crc := uint16(0)
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc % slots
}
