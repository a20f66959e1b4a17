package redisstore

import "strings"

// slots is how many a cluster has.
const slots = 16384

// slotOf returns the slot of a key: CRC16 (XMODEM) of the key, or of its hash
// tag, what stands between the first { and the next }, if that is not empty.
func slotOf(key string) uint16 {
	if from := strings.IndexByte(key, '{'); from >= 0 {
		if n := strings.IndexByte(key[from+1:], '}'); n > 0 {
			key = key[from+1 : from+1+n]
		}
	}
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
