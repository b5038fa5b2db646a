// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "ddp/error.h"

namespace ddpsock::ddp {

const char* to_string(Error e) {
  switch (e) {
    case Error::kLocalCatastrophic:
      return "local catastrophic error";
    case Error::kInvalidStag:
      return "tagged buffer error: invalid STag";
    case Error::kBaseOrBounds:
      return "tagged buffer error: base or bounds violation";
    case Error::kStagNotAssociated:
      return "tagged buffer error: STag not associated with the stream";
    case Error::kToWrap:
      return "tagged buffer error: TO wrap";
    case Error::kTaggedVersion:
      return "tagged buffer error: invalid DDP version";
    case Error::kInvalidQn:
      return "untagged buffer error: invalid QN";
    case Error::kNoBuffer:
      return "untagged buffer error: no buffer available for the MSN";
    case Error::kMsnRange:
      return "untagged buffer error: MSN out of range";
    case Error::kInvalidMo:
      return "untagged buffer error: invalid MO";
    case Error::kTooLong:
      return "untagged buffer error: message too long for the buffer";
    case Error::kUntaggedVersion:
      return "untagged buffer error: invalid DDP version";
  }
  return "unknown DDP error";
}

}  // namespace ddpsock::ddp
