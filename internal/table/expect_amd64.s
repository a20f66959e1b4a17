#include "go_asm.h"
#include "textflag.h"

// func expect(s *Shard, at, tag uint64)
//
// What is read of the shard may be changed by others meanwhile: then the wrong
// lines are fetched, and nothing else happens.
TEXT ·expect(SB), NOSPLIT|NOFRAME, $0-24
	MOVQ s+0(FP), DI
	MOVQ Shard_entries(DI), R10
	MOVQ (Shard_entries+8)(DI), R8
	MOVQ Shard_marks(DI), R9

	MOVQ at+8(FP), AX // Find's home is the upper half of the product
	MULQ R8
	LEAQ (DX)(DX*2), CX // an entry has 24 bytes
	PREFETCHT0 (R10)(CX*8)
	ANDQ $~7, DX // a mark has one
	PREFETCHT0 (R9)(DX*1)

	MOVQ tag+16(FP), AX // and other's
	ROLQ $32, AX
	MULQ R8
	ANDQ $~7, DX
	PREFETCHT0 (R9)(DX*1)
	RET
