//! Commands as Redis reads them.

/// Words are appended as bulk strings; how many there are is said in front of them.
#[derive(Default)]
pub struct Words {
    body: Vec<u8>,
    count: usize,
}

impl Words {
    pub fn word(&mut self, word: &[u8]) {
        self.count += 1;
        head(&mut self.body, b'$', word.len() as u64);
        self.body.extend_from_slice(word);
        self.body.extend_from_slice(b"\r\n");
    }

    /// Words that were written before, with their heads.
    pub fn ready(&mut self, count: usize, words: &[u8]) {
        self.count += count;
        self.body.extend_from_slice(words);
    }

    pub fn number(&mut self, number: u64) {
        let mut digits = [0; 20];
        let start = decimal(number, &mut digits);
        self.word(&digits[start..]);
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Ends the command: it goes out, and the next can begin.
    pub fn end(&mut self, out: &mut Vec<u8>) {
        head(out, b'*', self.count as u64);
        out.append(&mut self.body);
        self.count = 0;
    }
}

fn head(out: &mut Vec<u8>, prefix: u8, number: u64) {
    let mut digits = [0; 20];
    let start = decimal(number, &mut digits);
    out.push(prefix);
    out.extend_from_slice(&digits[start..]);
    out.extend_from_slice(b"\r\n");
}

/// The number's digits at the end of `digits`; where they start.
fn decimal(mut number: u64, digits: &mut [u8; 20]) -> usize {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return at;
        }
    }
}
